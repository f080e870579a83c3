"""``gustfront incidents``: list them, and say something about one."""

from __future__ import annotations

import getpass
import time
from typing import Annotated

import typer

from app.commands.analyse import JsonOption, show_incidents
from app.commands.context import command, open_store, settings, span, stderr
from core.times import parse_time

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
    config = settings.load()
    first = parse_time(start, "--start") if start else None
    last = parse_time(end, "--end") if end else None
    if first is not None and last is not None:
        span(start or "", end or "")
    with open_store(config, read_only=True) as store:
        found = store.incidents(start=first, end=last, open_only=open_only)
    show_incidents(sorted(found, key=lambda one: -one.started_at), as_json, "No incident.")


@incidents_cli.command("accept")
@command
def accept(
    incident: Annotated[str, typer.Argument(help="Id of the incident, as the list and the page show it.")],
    reason: Annotated[str, typer.Option(help="Why this is how it is from now on.")] = "",
    by: Annotated[str | None, typer.Option(help="Who says so. Default: the user of this machine.")] = None,
    at: Annotated[str | None, typer.Option(help="When: ISO 8601 or Unix seconds. Default: now.")] = None,
) -> None:
    """Accept what an incident shows as the new normal: it ends, and the normal of its replicas is learnt anew."""
    from app.services.lifecycle import accept_new_normal

    ts = parse_time(at, "--at") if at else time.time()
    config = settings.load()
    with open_store(config) as store:
        done = accept_new_normal(store, incident, at=ts, who=by or getpass.getuser(), reason=reason)
    where = ", ".join(done.replicas or done.pools)
    stderr.print(f"{done.kind} on {where} is the new normal; it is learnt over the next hour", markup=False)
