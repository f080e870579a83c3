"""Commands that answer: what would have been raised over a stretch of history, and what has been."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.commands.context import command, open_store, plain, print_json, progress_bar, settings, span, stdout
from core.incidents import Incident, iso
from core.times import parse_duration

if TYPE_CHECKING:
    from app.services.labelling import Agreement

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]


def incident_table(found: list[Incident], people: Mapping[str, str] | None = None) -> Table:
    """Incidents as a table for a terminal; texts are never read as markup. ``people``: by id, how it stands with them."""
    table = Table(box=None, pad_edge=False)
    more = () if people is None else ("people",)
    for head in ("severity", "state", "what", "since", "until", "where", "id", *more):
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
            *(() if people is None else (people.get(one.id) or "-",)),
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
    labels: Annotated[
        bool, typer.Option("--labels", help="Compare with what people said that stored incidents were.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the detectors over stored history as they would have run live, tick by tick, without hindsight."""
    from app.services.labelling import agreement
    from detectors.backtest import backtest as run_backtest

    config = settings.load()
    first, last = span(start, end)
    lag = parse_duration(ingest_lag, "--ingest-lag")
    with open_store(config, read_only=not save) as store, progress_bar("backtest") as progress:
        found = run_backtest(store, config, first, last, lag=lag, save=save, progress=progress)
        agreed = agreement(store, found, first, last) if labels else None
    if agreed is not None and as_json:
        print_json({"incidents": [one.as_json() for one in found], "labels": agreed.as_json()})
        return
    show_incidents(found, as_json, "No incident in this stretch.")
    if agreed is not None:
        _show_agreement(agreed)


def _show_agreement(agreed: Agreement) -> None:
    """How a back-test agrees with people, for a terminal."""
    told = agreed.as_json()
    stdout.print()
    if not agreed.checked:
        stdout.print("Nobody has labelled an incident of this stretch: see `gustfront incidents label`.")
        return
    table = Table(box=None, pad_edge=False)
    for head in ("agrees", "people said", "incident", "this run", "since", "id"):
        table.add_column(head, overflow="fold")
    for c in agreed.checked:
        word = {True: "yes", False: "no", None: "cannot tell"}[c.agrees]
        said = c.label.replace("_", " ") + (f", was {c.true_kind}" if c.true_kind else "")
        row = (word, said, c.incident.kind, c.why, iso(c.incident.started_at) or "", c.incident.id)
        table.add_row(*(plain(cell) for cell in row))
    stdout.print(table)
    for name, words in (
        ("precision", "raised (again) and real, as people say"),
        ("kind_right", "of the kind that people say"),
    ):
        x = told[name]
        share = f" ({x['share']:.0%}, {x['low']:.0%} to {x['high']:.0%})" if x["n"] else ", not enough data"
        stdout.print(f"{words}: {x['k']} of {x['n']}{share}", markup=False)
    stdout.print(f"real ones missed: {told['missed']}")
