"""Who does something, and what they may. Every act passes :func:`require` or :func:`allow` in the service that does it: pages,
API and command line call the same services, and hiding a button is a courtesy, not a defence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from core.config_auth import AuthConfig, RuleConfig

Role = Literal["viewer", "responder", "admin"]

RANK: Mapping[str, int] = MappingProxyType({"viewer": 0, "responder": 1, "admin": 2})

SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "incidents:read": "Read incidents and what was said of them",
        "incidents:write": "Acknowledge, assign, silence and note (role responder)",
        "slo:read": "Read objectives, reports and quality",
        "fleet:read": "Read targets, replicas and series",
        "texts:read": "Read texts of model outputs, where the token's role may",
        "outputs:write": "Send sampled outputs, over OTLP too",
        "outcomes:write": "Say what became of answers",
        "events:write": "Mark deployments and other events",
        "audit:read": "Read the audit log (role admin)",
        "metrics:read": "Scrape /metrics",
        "deliveries:write": "Send test messages and try failed ones again (role responder)",
    }
)
"""What an API token can be given. A person has every scope; a token only those it was made with."""

SENDING = frozenset({"outputs:write", "outcomes:write", "events:write"})
"""What programs do rather than people: a token with such a scope needs no role beyond it."""


@dataclass(frozen=True)
class Principal:
    """A person or a program: ``name`` stands in logs, ``role`` says what it may.

    ``scopes`` None: a person, who has all; otherwise a token's. ``via``: local, proxy, oidc or token.
    """

    name: str
    role: Literal["viewer", "responder", "admin"]
    scopes: frozenset[str] | None = None
    via: str = "local"


class Forbidden(Exception):
    """The principal lacks a role or scope; the message names it, ``fix`` says who can help."""

    fix = "ask an admin of this installation; docs/security.md says how roles and scopes are given"


def require(principal: Principal, role: str) -> None:
    """Pass if the principal has ``role`` or one above it (admin > responder > viewer); Forbidden otherwise."""
    if RANK[principal.role] < RANK[role]:
        raise Forbidden(f"{principal.name} has the role {principal.role}; this needs the role {role}")


def may(principal: Principal, role: str) -> bool:
    """Whether :func:`require` would pass: for pages, which say beforehand what somebody cannot do."""
    return RANK[principal.role] >= RANK[role]


def allow(principal: Principal, role: str, scope: str) -> None:
    """Pass if the principal has the role and, being a token, the scope ("": any token); Forbidden names what is missing.

    A token that may send (outputs, outcomes, events) needs the scope alone.
    """
    if principal.scopes is not None and scope:
        if scope not in principal.scopes:
            raise Forbidden(f"the token {principal.name} lacks the scope {scope}")
        if scope in SENDING:
            return
    require(principal, role)


@dataclass(frozen=True)
class Identity:
    """Who somebody is, as a proxy or a provider says; ``email`` only where it counts. ``since``: Unix seconds of the sign-in.
    ``origin``: the address they come from."""

    name: str
    email: str = ""
    groups: tuple[str, ...] = ()
    via: str = "local"
    since: float = 0.0
    origin: str = ""


def role_of(who: Identity, auth: AuthConfig) -> Role | None:
    """The highest role that a rule gives, else the default one; None: may not come in."""
    for role in ("admin", "responder", "viewer"):
        if _fits(who, getattr(auth.roles, role)):
            return role
    return auth.otherwise


def _fits(who: Identity, rule: RuleConfig) -> bool:
    email = who.email.lower()
    return (
        who.name in rule.names
        or (email != "" and (email in rule.emails or email.rpartition("@")[2] in rule.domains))
        or not set(rule.groups).isdisjoint(who.groups)
    )


def principal_of_identity(who: Identity, auth: AuthConfig) -> Principal | None:
    """Who somebody is to the services, by the rules in force; None where no rule gives a role."""
    role = role_of(who, auth)
    return None if role is None else Principal(who.name, role, None, who.via)


def may_read_texts(principal: Principal, auth: AuthConfig) -> bool:
    """Whether texts of model outputs may be shown to them: their role may, and a token has the scope besides."""
    scoped = principal.scopes is None or "texts:read" in principal.scopes
    return scoped and principal.role in auth.texts


def require_texts(principal: Principal, auth: AuthConfig) -> None:
    """Forbidden unless :func:`may_read_texts`."""
    if not may_read_texts(principal, auth):
        roles = " or ".join(auth.texts) or "nobody"
        raise Forbidden(
            f"{principal.name} has the role {principal.role}; texts of outputs are shown to {roles} (auth.texts), "
            "and to tokens with the scope texts:read besides"
        )


LOCAL = Principal("local", "admin")
"""Whoever sits at this machine, where no authentication is configured."""
