"""Commands of ``gustfront incidents`` about what nobody is to be told of: silences until a time, mute windows every week."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from app.commands.acting import ByOption, actor, when
from app.commands.analyse import JsonOption
from app.commands.context import command, note_act, open_store, plain, print_json, settings, stderr, stdout
from core.errors import ConfigError
from core.silences import MuteWindow, Silence, about
from core.times import parse_duration, parse_time

MatchersArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="""Matchers over kind, pool, class, severity, tenant, replica, such as 'pool="coder"' or 'kind=~"kv_.*"';
        all have to hold."""
    ),
]
Q = TypeVar("Q", Silence, MuteWindow)
NeededReason = Annotated[str, typer.Option("--reason", help="Why; shown beside everything that it hides.")]


def silence(
    matchers: MatchersArgument = None,
    incident: Annotated[
        str | None,
        typer.Option("--incident", help="Instead of matchers: the kind and pools of this incident."),
    ] = None,
    for_: Annotated[str | None, typer.Option("--for", help="How long, such as 2h.")] = None,
    until: Annotated[str | None, typer.Option(help="Until when: ISO 8601 or Unix seconds.")] = None,
    start: Annotated[str | None, typer.Option(help="From when. Default: now.")] = None,
    reason: NeededReason = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Nobody is told of incidents that match until a time. They are still found, shown and logged."""
    from app.services.incident_json import silence_json
    from app.services.lifecycle import find
    from app.services.silencing import silence as make

    now = time.time()
    if (for_ is None) == (until is None):
        raise ConfigError("--for", "give either --for or --until", "write --for 2h")
    if bool(matchers) == bool(incident):
        raise ConfigError("matchers", "give either matchers or --incident", """write 'pool="coder"'""")
    begin = parse_time(start, "--start") if start else now
    end = begin + parse_duration(for_, "--for") if for_ else parse_time(until or "", "--until")
    with open_store(settings.load()) as store:
        text = about(find(store, incident)) if incident else ",".join(matchers or ())
        made = make(store, text, actor(by), reason=reason, ends_at=end, starts_at=begin, at=now)
        note_act(store, "silence", made.id, actor(by).name, matchers=made.matchers, reason=reason)
    if as_json:
        print_json(silence_json(made, now))
    else:
        stderr.print(plain(f"silence {made.id}: {made.matchers} until {when(made.ends_at)}"), soft_wrap=True)


def mute(
    matchers: MatchersArgument = None,
    days: Annotated[str, typer.Option(help="Days on which it begins, such as mon,tue or all.")] = "all",
    start: Annotated[str, typer.Option(help="From this time of day, such as 22:00.")] = "",
    end: Annotated[
        str, typer.Option(help="Until this time of day; before the start means the next day.")
    ] = "",
    zone: Annotated[
        str, typer.Option(help="Time zone of the clock on the wall, such as Europe/Berlin.")
    ] = "UTC",
    reason: NeededReason = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Nobody is told of incidents that match at these times of every week, by the clock on the wall."""
    from app.services.incident_json import mute_json
    from app.services.silencing import mute as make
    from core.silences import DAYS

    now = time.time()
    with open_store(settings.load()) as store:
        made = make(
            store,
            ",".join(matchers or ()),
            actor(by),
            days=DAYS if days.strip() == "all" else days.split(","),
            start=start,
            end=end,
            zone=zone,
            reason=reason,
            at=now,
        )
        note_act(store, "mute", made.id, actor(by).name, matchers=made.matchers, reason=reason)
    if as_json:
        print_json(mute_json(made, now))
    else:
        stderr.print(plain(f"mute window {made.id}: {made.matchers} {made.words()}"), soft_wrap=True)


def silences(
    all_: Annotated[bool, typer.Option("--all", help="Those over and taken back too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List silences and mute windows."""
    from app.services.incident_json import mute_json, silence_json
    from app.services.silencing import silences as read

    now = time.time()
    with open_store(settings.load(), read_only=True) as store:
        found, windows = read(store, all_=all_, at=now), store.mutes(withdrawn=all_)
    if as_json:
        print_json(
            {"silences": [silence_json(s, now) for s in found], "mutes": [mute_json(m, now) for m in windows]}
        )
        return
    if not found and not windows:
        stdout.print("No silence and no mute window.")
        return
    table = Table(box=None, pad_edge=False)
    for head in ("state", "matchers", "when", "reason", "author", "id"):
        table.add_column(head, overflow="fold")
    for s in found:
        row = (
            s.state(now),
            s.matchers,
            f"{when(s.starts_at)} to {when(s.ends_at)}",
            s.reason,
            s.author,
            s.id,
        )
        table.add_row(*(plain(cell) for cell in row))
    for m in windows:
        state = "withdrawn" if m.withdrawn_at is not None else "active" if m.active(now) else "waiting"
        table.add_row(*(plain(cell) for cell in (state, m.matchers, m.words(), m.reason, m.author, m.id)))
    stdout.print(table)


def unsilence(
    key: Annotated[str, typer.Argument(metavar="ID", help="Id of the silence; the beginning is enough.")],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a silence back."""
    from app.services.incident_json import silence_json
    from app.services.silencing import unsilence as back

    _take_back("silence", "unsilence", back, silence_json, key, by, as_json)


def unmute(
    key: Annotated[str, typer.Argument(metavar="ID", help="Id of the mute window; the beginning is enough.")],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a mute window back."""
    from app.services.incident_json import mute_json
    from app.services.silencing import unmute as back

    _take_back("mute window", "unmute", back, mute_json, key, by, as_json)


def _take_back(
    what: str,
    act: str,
    back: Callable[..., Q],
    shape: Callable[[Q, float], dict[str, Any]],
    key: str,
    by: str | None,
    as_json: bool,
) -> None:
    now = time.time()
    with open_store(settings.load()) as store:
        done = back(store, key, actor(by), at=now)
        note_act(store, act, done.id, actor(by).name)
    if as_json:
        print_json(shape(done, now))
    else:
        stderr.print(plain(f"{what} {done.id} ({done.matchers}) is taken back"), soft_wrap=True)


def register(group: typer.Typer) -> None:
    """Add them to ``gustfront incidents``."""
    for function in (silence, silences, unsilence, mute, unmute):
        group.command(function.__name__)(command(function))
