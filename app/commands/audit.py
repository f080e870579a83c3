"""``gustfront audit``: who did what, and who looked at texts of outputs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from app.commands.context import command, open_store, plain, print_json, settings, span, stdout
from core.times import parse_time

audit_cli = typer.Typer(no_args_is_help=True, help="Who did what, and who looked at texts of outputs.")


@audit_cli.callback()
def _audit() -> None:
    """Who did what, and who looked at texts of outputs."""


@audit_cli.command("list")
@command
def list_audit(
    start: Annotated[str | None, typer.Option(help="From when.")] = None,
    end: Annotated[str | None, typer.Option(help="Until when, exclusive.")] = None,
    who: Annotated[str | None, typer.Option(help="Only this person or token.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the newest.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")] = False,
) -> None:
    """List the audit log, the newest first."""
    from app.services.audit import as_json as line

    first = parse_time(start, "--start") if start else None
    last = parse_time(end, "--end") if end else None
    if start and end:
        span(start, end)
    with open_store(settings.load(), read_only=True) as store:
        found = [line(row) for row in store.audit(limit=limit, start=first, end=last, who=who, action=action)]
    if as_json:
        print_json(found)
        return
    if not found:
        stdout.print("Nothing in the audit log.")
        return
    table = Table(box=None, pad_edge=False)
    for head in ("when", "who", "role", "action", "subject", "from", ""):
        table.add_column(head, overflow="fold")
    for one in found:
        cells = [one["at"], one["who"], one["role"], one["action"], one["subject"]]
        cells += [one["origin"] or one["via"], "" if one["allowed"] else "refused"]
        table.add_row(*(plain(c) for c in cells))
    stdout.print(table)
