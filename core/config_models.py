"""Models of the configuration file: one class a section; names, defaults and help in one place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator

from core.classes import RESERVED, parse_matchers
from core.config_auth import AuthConfig
from core.config_delivery import ReceiverConfig, RouteConfig, WebhooksConfig
from core.config_judge import JudgeConfig
from core.config_slo import SloConfig
from core.config_sources import (
    OutputsSource,
    PrometheusSource,
    RequestsSource,
    ScrapeSource,
    ScrapeTarget,
    Section,
    SourceConfig,
    SourceSpec,
)
from core.config_teams import TeamConfig
from core.config_types import DatabaseUrl, HttpUrl, PositiveDuration, Size, duration, fail, hide_password
from core.errors import ConfigError
from core.kinds import kind
from core.objective import Joint, joint_key

__all__ = [
    "AppConfig",
    "AuthConfig",
    "ClassConfig",
    "Config",
    "DetectConfig",
    "IntakeConfig",
    "LimitsConfig",
    "OutputsConfig",
    "OutputsSource",
    "PrometheusSource",
    "RequestsSource",
    "RetentionConfig",
    "RolesConfig",
    "ScrapeSource",
    "ScrapeTarget",
    "Section",
    "SloConfig",
    "SourceConfig",
    "SourceSpec",
    "TeamConfig",
]

DAY = 86400.0


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
    redact: list[str] = Field(
        default_factory=list,
        description="""Regular expressions struck out of texts before they are stored, besides keys, tokens,
    passwords, addresses, phone, card and account numbers""",
    )
    never: list[str] = Field(
        default_factory=list,
        description="""Outputs that are not taken at all: alternatives of matchers over their fields, such as
    tenant="bank"; a comma inside one means and""",
    )
    random_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="""Share of the incoming outputs kept as the unbiased sample that rates are computed from;
    suspicious ones are kept besides""",
    )
    judge: JudgeConfig | None = Field(
        default=None, description="A model that is asked about suspicious outputs; without it none is"
    )

    @field_validator("redact")
    @classmethod
    def _compiles(cls, value: list[str]) -> list[str]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                fail(f"{pattern!r} is no regular expression: {error}", "correct the pattern")
        return value

    @field_validator("never")
    @classmethod
    def _matchers(cls, value: list[str]) -> list[str]:
        for item in value:
            try:
                parse_matchers(item)
            except ConfigError as error:
                fail(f"{error.problem}: {item!r}", error.fix)
        return value


class IntakeConfig(Section):
    """Receiving outputs, outcomes and OTLP spans over HTTP on the app's port."""

    accept: Literal["local", "token", "nothing"] = Field(
        default="local",
        description="""local: from this machine, and from elsewhere with a token; token: with a token only;
    nothing: never""",
    )
    tokens: list[str] = Field(
        default_factory=list,
        repr=False,
        description="""SHA-256 (64 hexadecimal digits) of each accepted bearer token: printf %s TOKEN | sha256sum""",
    )
    max_body: Size = Field(default=8 << 20, description="Largest body, after unpacking")
    max_records: int = Field(default=1000, ge=1, le=100_000, description="Most records of one body")
    waiting: int = Field(
        default=4, ge=0, le=1000, description="Bodies that may wait for the one at work; more get status 429"
    )

    @field_validator("tokens")
    @classmethod
    def _digests(cls, value: list[str]) -> list[str]:
        if any(not re.fullmatch(r"[0-9a-fA-F]{64}", v) for v in value):
            fail("a token is written as its SHA-256, 64 hexadecimal digits", "printf %s TOKEN | sha256sum")
        return [v.lower() for v in value]


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
        description="Address to listen on; beyond loopback only with auth, or with insecure_listen",
    )
    port: int = Field(default=8501, ge=1, le=65535, description="Port, 1 to 65535")
    insecure_listen: bool = Field(
        default=False,
        description="""Listen beyond loopback, and behind a proxy, without auth: whoever reaches the port may do everything""",
    )
    hosts: list[str] = Field(
        default_factory=list,
        description="""Names by which people reach this server, as in the address bar, without port. Addresses and localhost
    are known""",
    )
    origins: list[HttpUrl] = Field(
        default_factory=list,
        description="""Further addresses of these pages, such as https://gustfront.example.org, where a proxy changes the Host""",
    )
    requests_per_minute: int = Field(
        default=600,
        ge=1,
        le=1_000_000,
        description="API requests a minute from one sender; more get status 429",
    )


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
    teams: list[TeamConfig] = Field(
        default_factory=list, description="Who answers for an incident, first match wins"
    )
    receivers: list[ReceiverConfig] = Field(default_factory=list, description="Who can be told, and how")
    routes: list[RouteConfig] = Field(
        default_factory=list, description="Who is told of what; every one that matches applies"
    )
    webhooks: WebhooksConfig = Field(
        default_factory=WebhooksConfig, description="Deploys and other events that come in"
    )
    retention: RetentionConfig = Field(default_factory=RetentionConfig, description="How long data stays")
    outputs: OutputsConfig = Field(
        default_factory=OutputsConfig, description="What is kept of sampled answers"
    )
    intake: IntakeConfig = Field(default_factory=IntakeConfig, description="Receiving outputs over HTTP")
    detect: DetectConfig = Field(default_factory=DetectConfig, description="Detection")
    app: AppConfig = Field(default_factory=AppConfig, description="Pages and API")
    auth: AuthConfig = Field(default_factory=AuthConfig, description="Who may come in")
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

    @property
    def request_thresholds(self) -> tuple[float, ...]:
        """Thresholds (seconds) that the buckets of gateway requests have among their edges."""
        timed = [s.threshold for s in self.slos if s.sli in ("latency", "availability") and s.threshold > 0]
        return tuple(sorted({*timed, *(t for s in self.slos for t in s.thresholds.values())}))

    @property
    def request_joints(self) -> dict[str, Joint]:
        """Sets of thresholds that gateway requests are counted against as they come in, by name."""
        sets = [tuple(sorted(s.thresholds.items())) for s in self.slos if s.thresholds]
        return {joint_key(j): j for j in sets}

    @classmethod
    def built_in(cls) -> Config:
        """Defaults alone: SQLite in the working directory, no sources, classes from label ``workload``, else
        the pool.
        """
        return cls()
