"""Who may come in: how people are known, and which role each has."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from core.config_sources import Section
from core.config_types import HttpUrl, PositiveDuration, fail

RoleName = Literal["viewer", "responder", "admin"]

HOUR = 3600.0


class RuleConfig(Section):
    """Who has one role; any of these is enough."""

    names: list[str] = Field(default_factory=list, description="User names")
    emails: list[str] = Field(default_factory=list, description="E-mail addresses, in any case")
    domains: list[str] = Field(default_factory=list, description="What stands behind the @ of e-mails")
    groups: list[str] = Field(default_factory=list, description="Groups, as the proxy or provider names them")

    @field_validator("emails", "domains")
    @classmethod
    def _lower(cls, value: list[str]) -> list[str]:
        return [v.strip().lower().removeprefix("@") for v in value]


class RolesOfPeople(Section):
    """Which people have which role; the highest that fits counts."""

    viewer: RuleConfig = Field(default_factory=RuleConfig, description="May look")
    responder: RuleConfig = Field(default_factory=RuleConfig, description="May act on incidents too")
    admin: RuleConfig = Field(default_factory=RuleConfig, description="May do everything")


class ProxyConfig(Section):
    """A reverse proxy that signs people in and says who they are; its headers count only when they come from it."""

    addresses: list[str] = Field(
        default_factory=list,
        description="Addresses or networks that the proxy connects from, such as 10.0.0.7",
    )
    secret: str = Field(
        default="",
        repr=False,
        description="""What the proxy sends in secret_header; needed where others can connect from its addresses.
    At least 16 characters""",
    )
    secret_header: str = Field(default="X-Gustfront-Proxy", description="Header that carries the secret")
    user_header: str = Field(default="X-Forwarded-User", description="Header with the user's name")
    email_header: str = Field(default="X-Forwarded-Email", description="Header with the e-mail address")
    groups_header: str = Field(default="X-Forwarded-Groups", description="Header with groups, by commas")

    @field_validator("addresses")
    @classmethod
    def _networks(cls, value: list[str]) -> list[str]:
        for item in value:
            try:
                ipaddress.ip_network(item, strict=False)
            except ValueError:
                fail(f"{item!r} is no address and no network", "write 10.0.0.7 or 10.0.0.0/24")
        return value

    @field_validator("secret")
    @classmethod
    def _long(cls, value: str) -> str:
        if value and len(value) < 16:
            fail("is shorter than 16 characters", "take one from `openssl rand -hex 32`")
        return value

    @field_validator("secret_header", "user_header", "email_header", "groups_header")
    @classmethod
    def _header(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9-]+", value):
            fail("is no header name", "write letters, digits and hyphens")
        return value

    @model_validator(mode="after")
    def _known(self) -> ProxyConfig:
        if not self.addresses and not self.secret:
            fail("nothing says which requests come from the proxy", "give addresses, or secret, or both")
        return self


class OidcConfig(Section):
    """An OpenID Connect provider, such as Keycloak, Entra ID, Okta or Google."""

    issuer: HttpUrl = Field(description="The provider: its /.well-known/openid-configuration is read")
    client_id: str = Field(min_length=1, description="Id of this application at the provider")
    client_secret: str = Field(
        min_length=1, repr=False, description="Its secret; write ${NAME} to take it from the environment"
    )
    url: HttpUrl = Field(
        description="""Where people reach Gustfront, such as https://gustfront.example.org; register URL/oauth2callback at
    the provider"""
    )
    scope: str = Field(default="openid email profile", description="Scopes asked of the provider")
    name_claim: str = Field(
        default="preferred_username", description="Claim with the user's name; else e-mail, else sub"
    )
    groups_claim: str = Field(default="groups", description="Claim with the groups")
    verified_email: bool = Field(
        default=True,
        description="""Count an e-mail address only if the provider says email_verified. Without, whoever can write an address
    into the provider's profile has the role of its owner""",
    )
    session: PositiveDuration = Field(default=12 * HOUR, description="How long a sign-in lasts")


class AuthConfig(Section):
    """Who may come in. `auth: none`: everybody who reaches the port, which therefore has to be on loopback."""

    mode: Literal["none", "proxy", "oidc"] = Field(
        default="none",
        description="none: only on loopback; proxy: a reverse proxy signs people in; oidc: Gustfront asks a provider",
    )
    proxy: ProxyConfig | None = Field(default=None, description="Needed with mode proxy")
    oidc: OidcConfig | None = Field(default=None, description="Needed with mode oidc")
    roles: RolesOfPeople = Field(default_factory=RolesOfPeople, description="Which people have which role")
    default_role: RoleName | Literal["nobody"] | None = Field(
        default=None,
        description="""Role of those whom no rule names. Without: admin with mode none, viewer with proxy, nobody with oidc""",
    )
    texts: list[RoleName] = Field(
        default=["admin"],
        description="Roles that may read texts of model outputs; each look is in the audit log",
    )

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {"mode": value} if isinstance(value, str) else {"mode": "none"} if value is None else value

    @model_validator(mode="after")
    def _complete(self) -> AuthConfig:
        if self.mode == "proxy" and self.proxy is None:
            fail("mode proxy needs to know the proxy", "add auth.proxy with addresses or secret")
        if self.mode == "oidc":
            if self.oidc is None:
                fail(
                    "mode oidc needs a provider",
                    "add auth.oidc with issuer, client_id, client_secret and url",
                )
            named = (self.roles.viewer, self.roles.responder, self.roles.admin)
            if self.default_role in (None, "nobody") and not any(
                (r.names or r.emails or r.domains or r.groups) for r in named
            ):
                fail("nobody could come in", "name people under auth.roles, or set auth.default_role: viewer")
        return self

    @property
    def otherwise(self) -> RoleName | None:
        """The role of whom no rule names; None: they may not come in."""
        if self.default_role == "nobody":
            return None
        if self.default_role is not None:
            return self.default_role
        return {"none": "admin", "proxy": "viewer"}.get(self.mode)  # type: ignore[return-value]
