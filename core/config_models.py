"""Models of the configuration file: one class a section; names, defaults and help in one place."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic_core.core_schema import ValidationInfo

from core.classes import RESERVED, parse_matchers
from core.config_types import (
    DatabaseUrl,
    Duration,
    FilePath,
    HttpUrl,
    PositiveDuration,
    Size,
    duration,
    fail,
    hide_password,
)
from core.errors import ConfigError
from core.kinds import kind

DAY = 86400.0
MIB = 1024 * 1024


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values do not change after loading, inputs are not
    echoed.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )


class _Named(Section):
    name: str = Field(
        default="", description="Name on screens and in cursors; by default made from the address"
    )


class PrometheusSource(_Named):
    """A Prometheus-compatible server: Prometheus, VictoriaMetrics, Mimir, Thanos."""

    url: HttpUrl = Field(description="Base URL of the server, such as http://prometheus:9090")
    selector: str = Field(
        default='{__name__!=""}',
        description='PromQL selector of the series to read, such as {job=~"vllm|dcgm"}',
    )
    every: PositiveDuration = Field(
        default=15.0, description="How often to ask; the scrape interval of the server"
    )
    lag: Duration = Field(
        default=30.0, description="How far behind now to read, so that late samples are there"
    )
    timeout: PositiveDuration = Field(default=20.0, description="Time limit of one query")
    token_file: FilePath | None = Field(default=None, description="File with a bearer token")
    username: str | None = Field(
        default=None, description="User of basic authentication; its password comes from password_file"
    )
    password_file: FilePath | None = Field(
        default=None, description="File with the password of basic authentication"
    )
    org_id: str | None = Field(
        default=None, description="Tenant for Mimir, Cortex or Loki style servers (X-Scope-OrgID)"
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="More HTTP headers; ${NAME} is taken from the environment",
    )
    ca_file: FilePath | None = Field(default=None, description="Certificate authority file")
    cert_file: FilePath | None = Field(default=None, description="Client certificate")
    key_file: FilePath | None = Field(default=None, description="Client key")
    insecure: bool = Field(default=False, description="Do not verify the server's certificate")
    drop_labels: list[str] = Field(
        default_factory=list, description="Labels that tell HA copies apart, to be dropped"
    )

    @field_validator("selector")
    @classmethod
    def _selector(cls, value: str) -> str:
        fix = """write a selector in braces, such as {job="vllm"}"""
        body = value.strip()
        if not (body.startswith("{") and body.endswith("}")):
            fail("not a PromQL selector", fix)
        try:
            parse_matchers(body)
        except ConfigError as error:
            fail(error.problem, fix)
        return body

    @model_validator(mode="after")
    def _auth(self) -> PrometheusSource:
        if (self.username is None) != (self.password_file is None):
            fail("username and password_file belong together", "give both or neither")
        if self.token_file and self.username:
            fail("two ways to authenticate", "give token_file, or username and password_file")
        if self.key_file and not self.cert_file:
            fail("key_file without cert_file", "give the client certificate too")
        return self


def _text_labels(value: Any) -> Any:
    """YAML reads ``rank: 0``, ``canary: true`` and ``release: 2026-09-20`` as something else; as labels they are text."""
    if not isinstance(value, Mapping):
        return value
    return {k: _text_label(v) for k, v in value.items()}


def _text_label(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float, date)) else value


Labels = Annotated[dict[str, str], BeforeValidator(_text_labels)]


class ScrapeTarget(Section):
    """One address with labels of its own."""

    url: str = Field(min_length=1, description="host:port or a full URL")
    labels: Labels = Field(default_factory=dict, description="Labels of this target")

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        fix = "write host:port or http://host:port/metrics"
        if any(c.isspace() for c in value):
            fail("not an address", fix)
        try:
            parts = urlsplit(value if "://" in value else f"http://{value}")
            _ = parts.port
        except ValueError:
            fail("not an address", fix)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            fail("not an http address", fix)
        if parts.username or parts.password:
            fail("credentials do not belong into an address", "use token_file")
        return value


def _as_target(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class ScrapeSource(_Named):
    """Targets that Gustfront scrapes itself."""

    targets: list[Annotated[ScrapeTarget, BeforeValidator(_as_target)]] = Field(
        default_factory=list, description="Addresses: host:port, URL, or {url, labels}"
    )
    labels: Labels = Field(default_factory=dict, description="Labels added to every target, such as pool")
    file_sd: list[FilePath] = Field(default_factory=list, description="Globs of Prometheus file_sd files")
    http_sd: list[HttpUrl] = Field(
        default_factory=list, description="URLs that answer with Prometheus http_sd lists"
    )
    every: PositiveDuration = Field(default=15.0, description="Scrape interval")
    timeout: PositiveDuration = Field(default=5.0, description="Time limit of one scrape")
    path: str = Field(default="/metrics", description="Path where the address names none")
    scheme: Literal["http", "https"] = Field(
        default="http", description="Scheme where the address names none"
    )
    max_bytes: Size = Field(default=32 * MIB, description="Largest body accepted")
    max_series: int = Field(default=100_000, gt=0, description="Most series accepted of one target")
    max_label_length: int = Field(default=4096, gt=0, description="Longest label value accepted")
    token_file: FilePath | None = Field(default=None, description="File with a bearer token")
    insecure: bool = Field(default=False, description="Do not verify the target's certificate")

    @model_validator(mode="after")
    def _somewhere(self) -> ScrapeSource:
        if not (self.targets or self.file_sd or self.http_sd):
            fail("nothing to scrape", "give targets, file_sd or http_sd")
        if self.timeout > self.every:
            fail("timeout is longer than every", "a scrape must end before the next begins")
        if not self.path.startswith("/"):
            fail("path must start with a slash", "write /metrics")
        return self

    def url_of(self, address: str) -> str:
        """The full URL of an address: scheme and path filled in where it names none."""
        url = address if "://" in address else f"{self.scheme}://{address}"
        parts = urlsplit(url)
        return url.rstrip("/") + self.path if parts.path in ("", "/") and not parts.query else url


class RequestsSource(_Named):
    """A gateway's access log: every attempt, one JSON object a line."""

    file: FilePath = Field(description="JSON lines, plain, .gz or .zst")
    point: Literal["gateway", "router", "client"] = Field(
        default="gateway", description="Where the log was measured"
    )


class OutputsSource(_Named):
    """A sample of finished requests with their answers, one JSON object a line."""

    file: FilePath = Field(description="JSON lines, plain, .gz or .zst")


SourceSpec = PrometheusSource | ScrapeSource | RequestsSource | OutputsSource


class SourceConfig(Section):
    """One entry of ``sources``: a mapping with exactly one of the keys below."""

    prometheus: PrometheusSource | None = Field(default=None, description="A Prometheus-compatible server")
    scrape: ScrapeSource | None = Field(default=None, description="Targets to scrape directly")
    requests: RequestsSource | None = Field(default=None, description="A gateway's access log")
    outputs: OutputsSource | None = Field(default=None, description="A sample of answers")

    @model_validator(mode="after")
    def _one(self) -> SourceConfig:
        if len(self.model_fields_set) != 1 or self.kind == "":
            fail(
                "a source has exactly one kind",
                "write one of prometheus, scrape, requests, outputs per list entry",
            )
        return self

    @property
    def kind(self) -> str:
        """``prometheus``, ``scrape``, ``requests`` or ``outputs``."""
        return next(
            (k for k in ("prometheus", "scrape", "requests", "outputs") if getattr(self, k) is not None), ""
        )

    @property
    def spec(self) -> SourceSpec:
        """The settings of that kind."""
        spec: SourceSpec = getattr(self, self.kind)
        return spec

    @property
    def name(self) -> str:
        """The name given, or one made from kind and address: stable while the address is."""
        if self.spec.name:
            return self.spec.name
        if self.prometheus:
            return f"prometheus:{self.prometheus.url.split('://', 1)[1]}"
        log = self.requests or self.outputs
        return f"{self.kind}:{log.file}" if log else self.kind


class RolesConfig(Section):
    """Which labels say where a target stands; the first non-empty one wins."""

    cluster: list[str] = Field(default=["cluster"], description="Cluster or region")
    pool: list[str] = Field(default=["pool"], description="Replicas that serve the same traffic")
    replica: list[str] = Field(default=["instance", "pod"], description="One serving instance")
    rank: list[str] = Field(default=["dp_rank", "engine"], description="Data-parallel rank inside a replica")
    role: list[str] = Field(default=["engine_type", "role"], description="unified, prefill or decode")
    model: list[str] = Field(default=["model_name", "model"], description="Model served")
    release: list[str] = Field(default=["release", "version"], description="Release of the deployment")
    tenant: list[str] = Field(default=["tenant", "team"], description="Who sends")
    gpu_host: list[str] = Field(default=["Hostname", "hostname"], description="Host of a GPU series")

    @field_validator("*", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class ClassConfig(Section):
    """A workload class: a name and alternatives of PromQL matchers."""

    name: str = Field(min_length=1, max_length=100, description="Name of the class")
    match: list[str] = Field(
        min_length=1,
        description="""Alternatives such as workload="chat"; a comma
    inside one means and""",
    )

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value in RESERVED:
            fail("the name is reserved", f"use a name other than {', '.join(sorted(RESERVED))}")
        return value

    @field_validator("match", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Any:
        value = [value] if isinstance(value, str) else value
        for item in value if isinstance(value, list) else ():
            if isinstance(item, str):
                try:
                    parse_matchers(item)
                except ConfigError as error:
                    fail(f"{error.problem}: {item!r}", error.fix)
        return value


def _signals() -> Any:
    """The dictionary of signals; looked up when needed so that models can be built without it."""
    try:
        return importlib.import_module("core.signals")
    except ModuleNotFoundError as error:
        if error.name == "core.signals":
            return None
        raise


class SloConfig(Section):
    """An objective: ``objective_percent`` of the requests of ``class`` have ``signal`` at most
    ``threshold``.
    """

    name: str = Field(min_length=1, max_length=100, description="Name of the objective")
    class_: str = Field(alias="class", min_length=1, description="Workload class it is about")
    signal: str = Field(description="Id or alias of a latency signal, such as ttft_seconds or ttft")
    threshold: float = Field(description="Longest time that is still good, such as 5s")
    objective_percent: float = Field(
        gt=0, lt=100, description="Share of good requests promised, such as 99 or 99.9"
    )
    window: PositiveDuration = Field(default=28 * DAY, description="Rolling window of the promise")
    point: Literal["auto", "client", "gateway", "router", "engine"] = Field(
        default="auto",
        description="Where it is measured; auto takes the gateway log where there is one, else the engine",
    )

    @field_validator("signal")
    @classmethod
    def _known(cls, value: str) -> str:
        signals = _signals()
        if signals is None:
            return value
        try:
            signal = signals.resolve(value)
        except ConfigError as error:
            fail(error.problem, error.fix)
        if signal.kind != "histogram":
            fail(f"{signal.id} is a {signal.kind}, not a histogram", "name a latency such as ttft_seconds")
        return str(signal.id)

    @field_validator("threshold", mode="before")
    @classmethod
    def _seconds(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            value = duration(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if str(info.data.get("signal", "")).endswith("_seconds"):
                fail("a threshold in time needs a unit", f"write {value}s if seconds are meant")
        else:
            fail("not a threshold", "write a duration such as 5s")
        if not 0 < value < float("inf"):
            fail("must be above zero", "write a duration such as 5s")
        return value


class RetentionConfig(Section):
    """How long each kind of data stays, counted from the newest data of its source."""

    frames: PositiveDuration = Field(default=14 * DAY, description="Packed scrapes")
    rollups_minute: PositiveDuration = Field(default=35 * DAY, description="Roll-ups of one minute")
    rollups_hour: PositiveDuration = Field(default=400 * DAY, description="Roll-ups of one hour")
    rollups_replica: PositiveDuration = Field(default=14 * DAY, description="Roll-ups per replica")
    requests: PositiveDuration = Field(default=400 * DAY, description="Counts from gateway logs")
    outputs: PositiveDuration = Field(default=90 * DAY, description="Sampled answers and their scores")
    max_bytes: Size | None = Field(
        default=None, description="Size of the database above which old frames go first"
    )


class OutputsConfig(Section):
    """What is kept of sampled answers."""

    store_text: bool = Field(default=False, description="Keep the text; otherwise it is scored and dropped")
    text_cap: int = Field(default=2000, ge=0, description="Characters kept of a text")


def _shadow_kind(value: Any) -> Any:
    if isinstance(value, str):
        try:
            kind(value)
        except ConfigError as error:
            fail(error.problem, error.fix)
    return value


def _lag(value: Any) -> Any:
    return value if value == "auto" else duration(value)


class DetectConfig(Section):
    """When detection runs and which rules only watch."""

    every: PositiveDuration = Field(default=15.0, description="Time between two ticks")
    lag: Annotated[float | Literal["auto"], BeforeValidator(_lag)] = Field(
        default="auto", description="Distance to now; auto measures the ingest lag"
    )
    shadow: list[Annotated[str, BeforeValidator(_shadow_kind)]] = Field(
        default_factory=list, description="Kinds that are recorded but alert nobody"
    )


class AppConfig(Section):
    """Where pages and API are served."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on; beyond loopback put authentication in front",
    )
    port: int = Field(default=8501, ge=1, le=65535, description="Port")


class LimitsConfig(Section):
    """Caps on label values; what is beyond becomes ``other``."""

    classes: int = Field(default=50, gt=0, description="Workload classes")
    tenants: int = Field(default=200, gt=0, description="Tenants")


class Config(Section):
    """The whole configuration. Build it with :func:`core.config.load_config` or :meth:`built_in`."""

    database: DatabaseUrl = Field(
        default="sqlite:///./gustfront.db", repr=False, description="SQLAlchemy URL: sqlite or postgresql"
    )
    sources: list[SourceConfig] = Field(default_factory=list, description="Where data comes from")
    roles: RolesConfig = Field(
        default_factory=RolesConfig, description="Labels that place a target in the fleet"
    )
    classes: list[ClassConfig] = Field(default_factory=list, description="Workload classes, first match wins")
    slos: list[SloConfig] = Field(default_factory=list, description="Objectives")
    retention: RetentionConfig = Field(default_factory=RetentionConfig, description="How long data stays")
    outputs: OutputsConfig = Field(
        default_factory=OutputsConfig, description="What is kept of sampled answers"
    )
    detect: DetectConfig = Field(default_factory=DetectConfig, description="Detection")
    app: AppConfig = Field(default_factory=AppConfig, description="Pages and API")
    limits: LimitsConfig = Field(default_factory=LimitsConfig, description="Caps on label values")

    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The file it was read from; None for the built-in configuration."""
        return self._path

    @property
    def database_shown(self) -> str:
        """The database URL without its password."""
        return hide_password(self.database)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Configured workload classes in order."""
        return tuple(c.name for c in self.classes)

    @classmethod
    def built_in(cls) -> Config:
        """Defaults alone: SQLite in the working directory, no sources, classes from label ``workload``, else
        the pool.
        """
        return cls()
