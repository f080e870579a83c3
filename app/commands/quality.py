"""``gustfront analyse quality``: the verdict of the Quality × load page on a terminal or as JSON."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from app.commands.context import command, open_store, plain, print_json, settings, span, stdout

group = typer.Typer(
    name="analyse",
    help="Answers from stored history: is it load?",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.callback()
def analyse() -> None:
    """Answers from stored history."""


@command
def quality(
    start: Annotated[
        str, typer.Option(help="From when: ISO 8601 (UTC where no zone is given) or Unix seconds.")
    ],
    end: Annotated[str, typer.Option(help="Until when, exclusive.")],
    pool: Annotated[str, typer.Option(help="Only this pool.")] = "",
    class_: Annotated[str, typer.Option("--class", help="Only this workload class.")] = "",
    model: Annotated[str, typer.Option(help="Only this model.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")] = False,
) -> None:
    """How often sampled outputs are degraded, what carries it, and whether load is to blame."""
    from app.services.quality_page import as_json as exported
    from app.services.quality_page import per_10k
    from detectors.quality.analysis import analyse as run
    from detectors.quality.history import Place

    config = settings.load()
    first, last = span(start, end)
    with open_store(config, read_only=True) as store:
        found = run(store, first, last, Place(pool, class_, model))
    if as_json:
        print_json(exported(found))
        return
    stdout.print(plain(found.verdict.title), style="bold")
    for line in found.verdict.because:
        stdout.print(f"  {plain(line)}")
    if found.verdict.next:
        stdout.print(f"Next: {plain(found.verdict.next)}")
    if found.deciles and found.rate.k:
        table = Table(box=None, pad_edge=False)
        for head in ("load", "degraded per 10,000 (95 %)", "of"):
            table.add_column(head)
        for p in found.deciles:
            table.add_row(f"×{p.load:.2f}", per_10k(p.rate), f"{p.rate.k:,} of {p.rate.n:,}")
        stdout.print(table)


group.command("quality")(quality)
