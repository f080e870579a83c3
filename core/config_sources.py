"""Models of the entries of ``sources``: where data comes from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from core.classes import parse_matchers
from core.config_types import Duration, FilePath, HttpUrl, PositiveDuration, Size, fail
from core.errors import ConfigError

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
    format: str = Field(
        default="auto",
        description="gustfront, litellm, langfuse, phoenix, openai, otel, or auto: told by the first records",
    )


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
