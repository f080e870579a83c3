"""``gustfront odd``: what was unusual in a window, over everything that is stored."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from app.commands.context import command, open_store, plain, print_json, settings, span, stdout, warn
from app.services.odd import OddReport, OddRow
from app.services.wording import clock, quantity


def _table(report: OddReport) -> Table:
    """Rows for a terminal, the oddest first; names from outside are never read as markup."""
    table = Table(box=None, pad_edge=False)
    for head in ("signal", "", "before", "now", "pool", "replicas", "since", "false share"):
        table.add_column(head, overflow="fold")
    for row in report.rows:
        cells = (
            _name(row),
            row.direction,
            quantity(row.before, row.unit),
            quantity(row.now, row.unit),
            row.pool,
            f"{len(row.replicas)} of {row.tested}: {', '.join(row.replicas[:3])}"
            + (" …" if len(row.replicas) > 3 else ""),
            clock(row.since),
            f"{row.q:.1g}" if row.q >= 1e-6 else "< 1e-6",
        )
        table.add_row(*(plain(cell) for cell in cells))
    return table


def _name(row: OddRow) -> str:
    marks = [f"{k}={v}" for k, v in row.labels] + ([row.class_] if row.class_ else [])
    what = {"mean": "mean ", "tail": "share in the tail of "}.get(row.what, "")
    return f"{what}{row.signal}" + (f" ({', '.join(marks)})" if marks else "")


@command
def odd(
    start: Annotated[
        str, typer.Option(help="From when: ISO 8601 (UTC where no zone is given) or Unix seconds.")
    ],
    end: Annotated[str, typer.Option(help="Until when, exclusive.")],
    pool: Annotated[str, typer.Option(help="Only this pool.")] = "",
    class_: Annotated[str, typer.Option("--class", help="Only this workload class.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")] = False,
) -> None:
    """Rank every stored signal of every replica by how unusual it was against its own past. Names no cause, pages nobody."""
    from app.services.odd import odd as find

    config = settings.load()
    first, last = span(start, end)
    with open_store(config, read_only=True) as store:
        report = find(store, first, last, pool=pool, class_=class_)
    if as_json:
        print_json(
            {
                "tested": report.tested,
                "past_seconds": report.past_seconds,
                "why_empty": report.why_empty,
                "rows": [row.as_json() for row in report.rows],
            }
        )
        return
    if report.why_empty:
        warn(f"nothing could be judged: {report.why_empty}")
    elif not report.rows:
        stdout.print(
            f"Nothing odd: {report.tested} series are as in the {report.past_seconds / 60:.0f} minutes before."
        )
    else:
        stdout.print(_table(report))
        stdout.print(
            f"{report.tested} series against the {report.past_seconds / 60:.0f} minutes before.", style="dim"
        )
