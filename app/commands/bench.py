"""``gustfront bench``: how good and how fast the rules are, on your own outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from app.commands.context import command, plain, print_json, stdout

bench_cli = typer.Typer(
    name="bench",
    help="How good and how fast the rules are, on your own outputs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
LEAST_CHARS = 400


@bench_cli.callback()
def bench() -> None:
    """How good and how fast the rules are."""


@bench_cli.command("text")
@command
def text(
    traces: Annotated[
        Path | None,
        typer.Option(help="Parquet file with output, auto_label (or label) and, if known, prompt."),
    ] = None,
    texts: Annotated[int, typer.Option(min=10, help="Texts broken for each kind of damage.")] = 400,
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")] = False,
) -> None:
    """Outputs a second, false positives per 10,000 and recall by kind of damage of the text rules."""
    from app.services.text_bench import help_texts, measure, trace_rows

    rows = trace_rows(traces) if traces is not None else []
    usable = [t for t in ([r.output for r in rows if r.normal] or help_texts()) if len(t) >= LEAST_CHARS]
    found = measure(rows, usable or help_texts(), texts)
    if as_json:
        print_json(found)
        return
    stdout.print(f"{found['outputs_per_second']:,} outputs of 1,200 characters a second on one core")
    if rows:
        stdout.print(
            f"hard on rows labelled normal: {found['false_positives_per_10k']} per 10,000 "
            f"(at most {found['false_positives_upper_per_10k']}, 95 %) of {found['rows_labelled_normal']:,}"
        )
    else:
        stdout.print("no file of outputs: false positives are not measured (--traces FILE)")
    table = Table(box=None, pad_edge=False)
    for head in ("damage", "hard", "hard or soft"):
        table.add_column(head, justify="left" if head == "damage" else "right")
    for kind, hard in found["recall"].items():
        table.add_row(plain(kind), f"{hard:.1%}", f"{found['recall_hard_or_soft'][kind]:.1%}")
    stdout.print(table)
