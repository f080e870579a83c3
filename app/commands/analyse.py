"""Commands that answer: what would have been raised over a stretch of history, and what has been."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from app.commands.context import command, open_store, plain, print_json, progress_bar, settings, span, stdout
from core.incidents import Incident, iso
from core.times import parse_duration

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]


def incident_table(found: list[Incident]) -> Table:
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


def show_incidents(found: list[Incident], as_json: bool, nothing: str) -> None:
    if as_json:
        print_json([one.as_json() for one in found])
    elif found:
        stdout.print(incident_table(found))
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
    show_incidents(found, as_json, "No incident in this stretch.")
