"""Who does something, and what they may. Every act passes :func:`require` or :func:`allow` in the service that does it: pages,
API and command line call the same services, and hiding a button is a courtesy, not a defence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

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
    """Pass if the principal has the role and, being a token, the scope; Forbidden names what is missing.

    A token that may send (outputs, outcomes, events) needs the scope alone.
    """
    if principal.scopes is not None:
        if scope not in principal.scopes:
            raise Forbidden(f"the token {principal.name} lacks the scope {scope}")
        if scope in SENDING:
            return
    require(principal, role)


LOCAL = Principal("local", "admin")
"""Whoever sits at this machine, where no authentication is configured."""
