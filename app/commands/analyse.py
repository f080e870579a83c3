"""Commands that answer: what would have been raised over a stretch of history, and what has been."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from app.commands.context import command, open_store, plain, print_json, progress_bar, settings, span, stdout
from core.incidents import Incident, iso
from core.times import parse_duration, parse_time

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]


def _table(found: list[Incident]) -> Table:
    """Incidents as a table for a terminal; texts from outside are never read as markup."""
    table = Table(box=None, pad_edge=False)
    for head in ("severity", "state", "what", "since", "until", "where", "id"):
        table.add_column(head, overflow="fold")
    for one in found:
        where = ", ".join(one.replicas or one.pools)
        row = (
            one.severity,
            one.state,
            one.title,
            iso(one.started_at) or "",
            iso(one.ended_at) or "-",
            where,
            one.id,
        )
        table.add_row(*(plain(cell) for cell in row))
    return table


def _show(found: list[Incident], as_json: bool, nothing: str) -> None:
    if as_json:
        print_json([one.as_json() for one in found])
    elif found:
        stdout.print(_table(found))
    else:
        stdout.print(nothing)


@command
def backtest(
    start: Annotated[
        str, typer.Option(help="From when: ISO 8601 (UTC where no zone is given) or Unix seconds.")
    ],
    end: Annotated[str, typer.Option(help="Until when, exclusive.")],
    ingest_lag: Annotated[
        str, typer.Option(help="How late data arrived: a detector at time t sees data up to t minus this.")
    ] = "30s",
    save: Annotated[
        bool, typer.Option("--save", help="Keep the incidents, so that the screens show them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the detectors over stored history as they would have run live, tick by tick, without hindsight."""
    from detectors.backtest import backtest as run_backtest

    config = settings.load()
    first, last = span(start, end)
    lag = parse_duration(ingest_lag, "--ingest-lag")
    with open_store(config, read_only=not save) as store, progress_bar("backtest") as progress:
        found = run_backtest(store, config, first, last, lag=lag, save=save, progress=progress)
    _show(found, as_json, "No incident in this stretch.")


@command
def incidents(
    open_only: Annotated[bool, typer.Option("--open", help="Only those not yet resolved.")] = False,
    start: Annotated[str | None, typer.Option(help="Only those that had not ended before this time.")] = None,
    end: Annotated[str | None, typer.Option(help="Only those that began before this time.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List incidents, newest first."""
    config = settings.load()
    first = parse_time(start, "--start") if start else None
    last = parse_time(end, "--end") if end else None
    if first is not None and last is not None:
        span(start or "", end or "")
    with open_store(config, read_only=True) as store:
        found = store.incidents(start=first, end=last, open_only=open_only)
    _show(sorted(found, key=lambda one: -one.started_at), as_json, "No incident.")
