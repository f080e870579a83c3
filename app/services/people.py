"""Who does something, and what they may. Every act of a person passes :func:`require`: pages, API and command line call the
same services, and hiding a button is a courtesy, not a defence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["viewer", "responder", "admin"]

RANK: dict[str, int] = {"viewer": 0, "responder": 1, "admin": 2}


@dataclass(frozen=True)
class Principal:
    """A person or a program: ``name`` stands in logs, ``role`` says what it may."""

    name: str
    role: Literal["viewer", "responder", "admin"]


class Forbidden(Exception):
    """The principal lacks a role; the message names it."""


def require(principal: Principal, role: str) -> None:
    """Pass if the principal has ``role`` or one above it (admin > responder > viewer); Forbidden otherwise."""
    if RANK[principal.role] < RANK[role]:
        raise Forbidden(f"{principal.name} is {principal.role}; this needs the role {role}")


LOCAL = Principal("local", "admin")
"""Whoever sits at this machine, where no authentication is configured."""
