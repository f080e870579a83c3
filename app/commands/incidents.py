"""``gustfront incidents``: list them, look at one, and act on it. What is quiet for whom is in :mod:`app.commands.quiet`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from app.commands.acting import ByOption, IncidentArgument, ReasonOption, actor, named, run_act, when
from app.commands.analyse import JsonOption, incident_table
from app.commands.context import command, open_store, plain, print_json, settings, span, stderr, stdout
from app.commands.quiet import register
from core.errors import InputError
from core.lifecycle import LogEntry
from core.times import parse_duration, parse_time

incidents_cli = typer.Typer(invoke_without_command=True, help="List incidents, newest first; or act on one.")


@incidents_cli.callback(invoke_without_command=True)
@command
def incidents(
    ctx: typer.Context,
    open_only: Annotated[bool, typer.Option("--open", help="Only those not yet resolved.")] = False,
    start: Annotated[str | None, typer.Option(help="Only those that had not ended before this time.")] = None,
    end: Annotated[str | None, typer.Option(help="Only those that began before this time.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List incidents, newest first; or act on one."""
    if ctx.invoked_subcommand is not None:
        return
    from app.services import attention
    from app.services.incident_json import many

    config = settings.load()
    first = parse_time(start, "--start") if start else None
    last = parse_time(end, "--end") if end else None
    if first is not None and last is not None:
        span(start or "", end or "")
    now = time.time()
    with open_store(config, read_only=True) as store:
        found = store.incidents(start=first, end=last, open_only=open_only)
        found.sort(key=lambda one: (-one.started_at, one.id))
        if as_json:
            print_json(many(store, config, found, at=now))
            return
        stands = attention.load(store, config, found, now)
    if not found:
        stdout.print("No incident.")
        return
    stdout.print(incident_table(found, {i.id: "; ".join(stands.standing(i).words(now)) for i in found}))


@incidents_cli.command("show")
@command
def show(incident: IncidentArgument, as_json: JsonOption = False) -> None:
    """Everything about one incident: what, where, since when, why, how it stands with people, and its log."""
    from app.services import attention
    from app.services.incident_json import one
    from app.services.lifecycle import find

    config, now = settings.load(), time.time()
    with open_store(config, read_only=True) as store:
        i = find(store, incident)
        if as_json:
            print_json(one(store, config, i, at=now))
            return
        stand = attention.load(store, config, [i], now).standing(i)
        entries = store.incident_log(i.id)
    lines = [
        ("what", i.title),
        ("id", i.id),
        ("kind", f"{i.kind}, {i.severity}, {i.state}"),
        ("onset", when(i.started_at)),
        ("detected", when(i.detected_at)),
        ("ended", when(i.ended_at)),
        ("classes", ", ".join(i.classes) or "all"),
        ("pools", ", ".join(i.pools) or "all"),
        ("replicas", ", ".join(i.replicas) or "not told"),
        ("cause", f"{i.cause or 'not established'} (confidence {i.confidence:.2f})"),
        ("people", "; ".join(stand.words(now)) or "nobody has it"),
        ("told", "yes" if stand.decision.notify else f"no: {stand.decision.why}"),
        ("label", stand.handling.label or "none"),
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(name, plain(value))
    stdout.print(table)
    if entries:
        stdout.print()
        stdout.print(_log_table(entries))


@incidents_cli.command("log")
@command
def log(incident: IncidentArgument, as_json: JsonOption = False) -> None:
    """What happened to an incident and who did it, in order; nothing of it is ever changed."""
    from app.services.incident_json import log_json
    from app.services.lifecycle import find

    with open_store(settings.load(), read_only=True) as store:
        entries = store.incident_log(find(store, incident).id)
    if as_json:
        print_json(log_json(entries))
    else:
        stdout.print(_log_table(entries) if entries else "Nothing is logged.")


def _log_table(entries: list[LogEntry]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("when", "what", "text", "who"):
        table.add_column(head, overflow="fold")
    for e in entries:
        table.add_row(when(e.ts), plain(e.action.replace("_", " ")), plain(e.text), plain(e.who))
    return table


@incidents_cli.command("ack")
@command
def ack(
    incident: IncidentArgument,
    text: Annotated[str, typer.Option("--text", help="What you want to say with it.")] = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Acknowledge: you have it. Until it is resolved nobody else is told."""
    from app.services.lifecycle import acknowledge

    run_act(
        lambda s: acknowledge(s, incident, actor(by), text=text),
        as_json,
        lambda d: f"{named(d)} is acknowledged by {d.handling.acknowledged_by}",
    )


@incidents_cli.command("unack")
@command
def unack(incident: IncidentArgument, by: ByOption = None, as_json: JsonOption = False) -> None:
    """Take an acknowledgement back: nobody has it, and escalation begins anew."""
    from app.services.lifecycle import unacknowledge

    run_act(lambda s: unacknowledge(s, incident, actor(by)), as_json, lambda d: f"nobody has {named(d)} now")


@incidents_cli.command("assign")
@command
def assign(
    incident: IncidentArgument,
    to: Annotated[str, typer.Argument(help="A person or team; '' gives it to nobody.")],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give an incident to a person or team."""
    from app.services.lifecycle import assign as give

    run_act(
        lambda s: give(s, incident, actor(by), to=to),
        as_json,
        lambda d: f"{named(d)} is assigned to {d.handling.assignee or 'nobody'}",
    )


@incidents_cli.command("note")
@command
def note(
    incident: IncidentArgument,
    text: Annotated[str, typer.Argument(help="What is to be written down.")],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write something down in an incident's log: what you saw, what you did, what ended it."""
    from app.services.lifecycle import note as write

    run_act(lambda s: write(s, incident, actor(by), text=text), as_json, lambda d: f"noted in {named(d)}")


@incidents_cli.command("reopen")
@command
def reopen(
    incident: IncidentArgument, reason: ReasonOption = "", by: ByOption = None, as_json: JsonOption = False
) -> None:
    """Say that a resolved incident is not over. It stays open until you resolve it or a detector has news of it."""
    from app.services.lifecycle import reopen as again

    run_act(
        lambda s: again(s, incident, actor(by), reason=reason), as_json, lambda d: f"{named(d)} is open again"
    )


@incidents_cli.command("resolve")
@command
def resolve(
    incident: IncidentArgument, reason: ReasonOption = "", by: ByOption = None, as_json: JsonOption = False
) -> None:
    """End an incident that a person opened again; others end when their evidence does."""
    from app.services.lifecycle import resolve as end

    run_act(
        lambda s: end(s, incident, actor(by), reason=reason), as_json, lambda d: f"{named(d)} is resolved"
    )


@incidents_cli.command("merge")
@command
def merge(
    incident: IncidentArgument,
    into: Annotated[str, typer.Argument(help="Id of the incident that it is a part of.")],
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an incident a part of another: nobody is told of it by itself any more."""
    from app.services.merging import merge as join

    run_act(
        lambda s: join(s, incident, into, actor(by), reason=reason),
        as_json,
        lambda d: f"{incident} is now part of {named(d)}",
    )


@incidents_cli.command("split")
@command
def split(
    incident: IncidentArgument, reason: ReasonOption = "", by: ByOption = None, as_json: JsonOption = False
) -> None:
    """Take an incident out of the one that it was merged into."""
    from app.services.merging import split as part

    run_act(
        lambda s: part(s, incident, actor(by), reason=reason),
        as_json,
        lambda d: f"{named(d)} stands for itself again",
    )


@incidents_cli.command("label")
@command
def label(
    incident: IncidentArgument,
    word: Annotated[
        str, typer.Argument(help="cause_right, cause_wrong, false_alarm, not_an_incident; '' takes it back.")
    ],
    kind: Annotated[str, typer.Option(help="With cause_wrong: the kind that it really was.")] = "",
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what it was. Month reports count false alarms; `backtest --labels` measures detectors against your words."""
    from app.services.labelling import label as say

    run_act(
        lambda s: say(s, incident, actor(by), label=word, kind=kind, reason=reason),
        as_json,
        lambda d: f"{named(d)}: {d.handling.label.replace('_', ' ') or 'no label'}",
    )


@incidents_cli.command("accept")
@command
def accept(
    incident: IncidentArgument,
    reason: Annotated[str, typer.Option(help="Why this is how it is from now on.")] = "",
    by: ByOption = None,
    at: Annotated[str | None, typer.Option(help="When: ISO 8601 or Unix seconds. Default: now.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Accept what an incident shows as the new normal: it ends, and the normal of its replicas is learnt anew."""
    from app.services.lifecycle import accept_new_normal

    ts = parse_time(at, "--at") if at else None
    run_act(
        lambda s: accept_new_normal(s, incident, actor(by), reason=reason, at=ts),
        as_json,
        lambda d: (
            f"{d.incident.kind} on {', '.join(d.incident.replicas or d.incident.pools)} is the new normal; "
            "it is learnt over the next hour"
        ),
    )


@incidents_cli.command("snooze")
@command
def snooze(
    incident: IncidentArgument,
    for_: Annotated[str | None, typer.Option("--for", help="At most so long, such as 2h.")] = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Not to be told of an incident until it is worse than now: severity, classes, pools, replicas, share of late requests."""
    from app.services.lifecycle import snooze as hush

    seconds = parse_duration(for_, "--for") if for_ else None
    run_act(
        lambda s: hush(s, incident, actor(by), reason=reason, seconds=seconds),
        as_json,
        lambda d: f"{named(d)} is snoozed until it is worse" + (f", at most {for_}" if for_ else ""),
    )


@incidents_cli.command("wake")
@command
def wake(incident: IncidentArgument, by: ByOption = None, as_json: JsonOption = False) -> None:
    """Take a snooze back."""
    from app.services.lifecycle import wake as up

    run_act(lambda s: up(s, incident, actor(by)), as_json, lambda d: f"{named(d)} is told of again")


@incidents_cli.command("similar")
@command
def similar(
    incident: IncidentArgument,
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most so many.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Earlier incidents like this one, in what they are alike, and what ended them."""
    from app.services.lifecycle import find
    from app.services.similar import similar as look

    with open_store(settings.load(), read_only=True) as store:
        found = look(store, find(store, incident), limit=limit)
    if as_json:
        print_json([s.as_json() for s in found])
        return
    if not found:
        stdout.print("None in the 400 days before.")
        return
    table = Table(box=None, pad_edge=False)
    for head in ("when", "alike in", "what ended it", "people called it", "id"):
        table.add_column(head, overflow="fold")
    for s in found:
        row = (s.when(), "; ".join(s.why), s.ended_by, s.label or "-", s.incident.id)
        table.add_row(*(plain(cell) for cell in row))
    stdout.print(table)


@incidents_cli.command("postmortem")
@command
def postmortem(
    incident: IncidentArgument,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for postmortem.md and its pictures; made if missing.")
    ],
    url: Annotated[
        str | None, typer.Option(help="Address of the app for links. Default: from the configuration.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a post-mortem: timeline, evidence, pictures and links filled in, the rest for people to write."""
    from app.services.postmortem import post_mortem

    config = settings.load()
    if out.exists() and not out.is_dir():
        raise InputError(str(out), "is a file", "name a folder")
    base = url or f"http://{config.app.host}:{config.app.port}"
    with open_store(config, read_only=True) as store:
        made = post_mortem(store, config, incident, base=base)
    files = made.write(out)
    if as_json:
        print_json({"name": made.name, "files": [str(f) for f in files]})
    else:
        stderr.print(plain(f"{files[0]} and {len(files) - 1} pictures"), soft_wrap=True)


register(incidents_cli)
