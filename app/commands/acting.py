"""What the commands that act on incidents share: who acts, and how it is told."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from typing import Annotated

import typer

from app.commands.context import note_act, open_store, plain, print_json, settings, stderr
from app.services.lifecycle import Acted
from app.services.people import Principal
from core.incidents import iso
from sql.store import Store

IncidentArgument = Annotated[
    str, typer.Argument(help="Id of the incident as the list shows it; the beginning is enough.")
]
ByOption = Annotated[str | None, typer.Option("--by", help="Who says so. Default: the user of this machine.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; stands in the log.")]


def actor(by: str | None) -> Principal:
    """Whoever can open the database may do everything with it; the name stands in the log."""
    return Principal((by or "").strip()[:100] or getpass.getuser(), "admin")


def run_act(act: Callable[[Store], Acted], as_json: bool, words: Callable[[Acted], str]) -> None:
    """Do it, and tell it: JSON of the incident on stdout, or one line on stderr."""
    from app.services.incident_json import one

    config = settings.load()
    with open_store(config) as store:
        done = act(store)
        for entry in done.written:
            note_act(store, entry.action, done.incident.id, entry.who, text=entry.text)
        told = one(store, config, done.incident, at=time.time()) if as_json else None
    if told is not None:
        print_json(told)
    else:
        stderr.print(plain(words(done)), soft_wrap=True)


def named(done: Acted) -> str:
    """``4f2a91 (KV eviction storm on coder-a)``."""
    return f"{done.incident.id} ({done.incident.title})"


def when(t: float | None) -> str:
    """ISO 8601, or a dash."""
    return iso(t) or "-"
