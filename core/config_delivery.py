"""Settings of delivery: receivers (who can be told, and how), routes (who is told of what), and webhooks that come in.

Secrets come from files (``*_file``, read again at each use, so that they may rotate) or as ``${NAME}`` from the environment.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from core.config_matchers import check_matchers
from core.config_sources import Section
from core.config_types import Duration, FilePath, HttpUrl, PositiveDuration, Size, fail
from core.silences import LABELS

KINDS = ("alertmanager", "slack", "webhook", "pagerduty", "opsgenie", "email", "grafana")
MINUTE = 60.0


def _one_of(model: Section, *names: str) -> None:
    given = [n for n in names if getattr(model, n)]
    if len(given) != 1:
        fail(
            f"needs exactly one of {' and '.join(names)}",
            f"write {names[-1]} with the path of a file that holds it, or {names[0]}: ${{NAME}}",
        )


class _Http(Section):
    timeout: PositiveDuration = Field(default=10.0, description="Time limit of one request")
    ca_file: FilePath | None = Field(
        default=None, description="Certificate authority file; certificates are always verified"
    )
    proxy: HttpUrl | None = Field(
        default=None, description="HTTP proxy to go through; those of the environment are not used"
    )


class _Token(_Http):
    username: str | None = Field(default=None, description="User of basic authentication")
    password_file: FilePath | None = Field(
        default=None, description="File with the password of basic authentication"
    )
    token_file: FilePath | None = Field(default=None, description="File with a bearer token")

    @model_validator(mode="after")
    def _whole(self) -> _Token:
        if (self.username is None) != (self.password_file is None):
            fail("username and password_file belong together", "give both or neither")
        if self.username is not None and self.token_file is not None:
            fail("both a password and a token", "give username and password_file, or token_file")
        return self


class AlertmanagerReceiver(_Token):
    """An Alertmanager (API v2): alerts are sent again while they fire, and ended when they are over."""

    url: HttpUrl = Field(description="Base URL, such as http://alertmanager:9093")
    resend: PositiveDuration = Field(
        default=60.0, description="How often alerts that fire are sent again; they expire after four of these"
    )
    resolve_after: Duration = Field(
        default=60.0,
        description="""Time between the first notice of an incident and its end, so that Alertmanager tells of one that is
    short; longer than its group_wait""",
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Labels added to every alert")
    heartbeat: PositiveDuration | None = Field(
        default=None,
        description="How often the alert GustfrontWatchdog is sent while collectors and detectors live; absent: never",
    )

    @field_validator("labels")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
                fail(f"{name!r} is no name of a label", "write letters, digits and underscores")
        return value


class SlackReceiver(_Http):
    """A Slack incoming webhook."""

    url: HttpUrl | None = Field(
        default=None, repr=False, description="The webhook's address, as ${NAME}: it is a secret"
    )
    url_file: FilePath | None = Field(default=None, description="File with the webhook's address")

    @model_validator(mode="after")
    def _where(self) -> SlackReceiver:
        _one_of(self, "url", "url_file")
        return self


class WebhookReceiver(_Http):
    """Any HTTP endpoint: JSON, signed with HMAC-SHA256 over time and body."""

    url: HttpUrl = Field(description="Where to POST", repr=False)
    secret_file: FilePath | None = Field(
        default=None, description="File with the key of the signature; absent: not signed"
    )
    token_file: FilePath | None = Field(default=None, description="File with a bearer token")
    heartbeat: PositiveDuration | None = Field(
        default=None,
        description="How often a heartbeat is sent while collectors and detectors live; absent: never",
    )
    events: bool = Field(default=False, description="Deploys and other events are told too")


class PagerDutyReceiver(_Http):
    """PagerDuty, Events API v2."""

    routing_key: str | None = Field(default=None, repr=False, description="Integration key, as ${NAME}")
    routing_key_file: FilePath | None = Field(default=None, description="File with the integration key")
    url: HttpUrl = Field(default="https://events.pagerduty.com", description="Base URL of the events API")

    @model_validator(mode="after")
    def _who(self) -> PagerDutyReceiver:
        _one_of(self, "routing_key", "routing_key_file")
        return self


class OpsgenieReceiver(_Http):
    """Opsgenie, alert API v2."""

    api_key: str | None = Field(default=None, repr=False, description="API key, as ${NAME}")
    api_key_file: FilePath | None = Field(default=None, description="File with the API key")
    url: HttpUrl = Field(
        default="https://api.opsgenie.com",
        description="Base URL of the API; https://api.eu.opsgenie.com in the EU",
    )
    responders: list[str] = Field(default_factory=list, description="Teams that answer, by name")
    tags: list[str] = Field(default_factory=list, description="Tags of every alert")

    @model_validator(mode="after")
    def _who(self) -> OpsgenieReceiver:
        _one_of(self, "api_key", "api_key_file")
        return self


def _address(value: str) -> str:
    name, at, host = value.rpartition("@")
    if not (name and at and host) or any(c.isspace() or c in '<>,;"\\' or ord(c) < 32 for c in value):
        fail("not an e-mail address", "write it as oncall@example.org")
    return value


Address = Annotated[str, AfterValidator(_address)]


class EmailReceiver(Section):
    """E-mail over SMTP."""

    host: str = Field(min_length=1, description="SMTP server")
    port: int = Field(default=587, ge=1, le=65535, description="Port of the SMTP server")
    tls: Literal["starttls", "tls", "none"] = Field(
        default="starttls",
        description="starttls: encrypted after the greeting; tls: from the start; none: not at all",
    )
    username: str | None = Field(default=None, description="User, where the server wants one")
    password_file: FilePath | None = Field(default=None, description="File with the user's password")
    sender: Address = Field(alias="from", description="Address in From")
    to: list[Address] = Field(min_length=1, description="Who gets it")
    timeout: PositiveDuration = Field(default=20.0, description="Time limit of one step")
    ca_file: FilePath | None = Field(
        default=None, description="Certificate authority file; certificates are always verified"
    )

    @field_validator("to", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _whole(self) -> EmailReceiver:
        if (self.username is None) != (self.password_file is None):
            fail("username and password_file belong together", "give both or neither")
        if self.username is not None and self.tls == "none":
            fail("a password would go over an open line", "use tls: starttls or tls: tls")
        return self


class GrafanaReceiver(_Http):
    """Grafana annotations: incidents as regions, deploys as marks; and annotations of people read in as events."""

    url: HttpUrl = Field(description="Base URL of Grafana")
    token_file: FilePath = Field(description="File with a service account token that may write annotations")
    dashboard: str | None = Field(default=None, description="UID of one dashboard; absent: all of them")
    tags: list[str] = Field(
        default_factory=lambda: ["gustfront"], description="Tags of every annotation", min_length=1
    )
    events: bool = Field(default=True, description="Deploys and other events are marked too")
    read: bool = Field(default=False, description="Annotations of people and pipelines become events")
    read_tags: list[str] = Field(
        default_factory=list, description="Read only annotations with all these tags; absent: all"
    )
    read_every: PositiveDuration = Field(default=60.0, description="How often to read")


ReceiverSpec = (
    AlertmanagerReceiver
    | SlackReceiver
    | WebhookReceiver
    | PagerDutyReceiver
    | OpsgenieReceiver
    | EmailReceiver
    | GrafanaReceiver
)


class ReceiverConfig(Section):
    """Somebody or something that can be told: a name and exactly one kind."""

    name: str = Field(min_length=1, max_length=100, description="Name, for routes, teams and screens")
    max_messages: int = Field(
        default=20,
        ge=2,
        description="""Most messages within per; what is more comes together in one digest; pagerduty and opsgenie get it later.
    No limit for alertmanager and grafana""",
    )
    per: PositiveDuration = Field(default=10 * MINUTE, description="Span over which messages are counted")
    alertmanager: AlertmanagerReceiver | None = Field(default=None, description="An Alertmanager")
    slack: SlackReceiver | None = Field(default=None, description="A Slack incoming webhook")
    webhook: WebhookReceiver | None = Field(default=None, description="Any HTTP endpoint, signed")
    pagerduty: PagerDutyReceiver | None = Field(default=None, description="PagerDuty, Events API v2")
    opsgenie: OpsgenieReceiver | None = Field(default=None, description="Opsgenie")
    email: EmailReceiver | None = Field(default=None, description="E-mail over SMTP")
    grafana: GrafanaReceiver | None = Field(default=None, description="Annotations in Grafana")

    @model_validator(mode="after")
    def _one(self) -> ReceiverConfig:
        if sum(getattr(self, k) is not None for k in KINDS) != 1:
            fail("a receiver has exactly one kind", f"write one of {', '.join(KINDS)} per list entry")
        return self

    @property
    def kind(self) -> str:
        """One of :data:`KINDS`."""
        return next(k for k in KINDS if getattr(self, k) is not None)

    @property
    def spec(self) -> ReceiverSpec:
        """The settings of that kind."""
        spec: ReceiverSpec = getattr(self, self.kind)
        return spec


class RouteConfig(Section):
    """Who is told of what. Every route that matches applies; without routes every receiver is told, save contacts of teams."""

    name: str = Field(default="", max_length=100, description="Name in lists of deliveries")
    match: list[str] = Field(
        default_factory=list,
        description="""Alternatives of matchers over kind, pool, class, severity, tenant, replica, such as pool=~"coder-.*"; a
    comma inside one means and; absent: every incident""",
    )
    min_severity: Literal["info", "ticket", "page"] = Field(
        default="ticket", description="Least severity that is told"
    )
    receivers: list[str] = Field(min_length=1, description="Who is told at once")
    group_wait: Duration = Field(
        default=10.0,
        description="How long a first message waits for others about the same pools, to go out together",
    )
    escalate_after: PositiveDuration = Field(
        default=15 * MINUTE,
        description="Time without an acknowledgement after which the next of escalate_to is told of a page",
    )
    escalate_to: list[str] = Field(
        default_factory=list, description="Who is told next, one after the other, while nobody acknowledges"
    )

    @field_validator("match", "receivers", "escalate_to", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("match")
    @classmethod
    def _readable(cls, value: list[str]) -> list[str]:
        check_matchers(value, LABELS)
        return value


class WebhooksConfig(Section):
    """Deploys and other events that come in over HTTP at /api/v1/events and /api/v1/webhooks."""

    github_secret_file: FilePath | None = Field(
        default=None, description="File with the secret of GitHub's webhook; with it, GitHub needs no token"
    )
    max_body: Size = Field(default=1 << 20, description="Largest body accepted")
