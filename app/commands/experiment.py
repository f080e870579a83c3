"""``gustfront experiment``: a switchback plan, and its analysis by randomisation."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from app.commands.context import command, open_store, plain, print_json, settings, stderr
from core.errors import InputError
from core.switchback import Plan, analyse
from core.times import format_duration, parse_duration, parse_time

experiment_cli = typer.Typer(
    help="Is load the cause? Cap concurrency on half of the replicas in turns, and see.", no_args_is_help=True
)


@experiment_cli.command("plan")
@command
def plan(
    replicas: Annotated[str, typer.Option(help="Replicas by name, separated by commas.")],
    start: Annotated[str, typer.Option(help="When it begins: ISO 8601 or Unix seconds.")],
    block: Annotated[str, typer.Option(help="Length of a block.")] = "1h",
    pairs: Annotated[int, typer.Option(help="Pairs of blocks; 7 are the fewest that can reach 1 %.")] = 12,
    washout: Annotated[str, typer.Option(help="Start of each block that is not counted.")] = "5m",
    seed: Annotated[int | None, typer.Option(help="Seed of the draw; default: a new one.")] = None,
) -> None:
    """Draw a plan: which replicas to cap in which block. JSON on stdout; keep it for the analysis."""
    drawn = Plan.draw(
        [r.strip() for r in replicas.split(",") if r.strip()],
        parse_time(start, "--start"),
        parse_duration(block, "--block"),
        pairs,
        parse_duration(washout, "--washout"),
        secrets.randbits(31) if seed is None else seed,
    )
    print_json(drawn.as_json())
    length = format_duration(drawn.end - drawn.start)
    stderr.print(
        plain(f"{2 * pairs} blocks, {length} in all; no p-value below {2.0**-pairs:.4f}"), soft_wrap=True
    )


@experiment_cli.command("analyse")
@command
def analysis(
    file: Annotated[Path, typer.Argument(help="The plan, as drawn.")],
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")] = False,
) -> None:
    """Compare degraded outputs of capped and uncapped replicas, by what other draws of the plan would have given."""
    try:
        drawn = Plan.from_json(orjson.loads(file.read_bytes()))
    except orjson.JSONDecodeError:
        raise InputError(
            str(file), "is no JSON", "name the file that gustfront experiment plan wrote"
        ) from None
    config = settings.load()
    with open_store(config, read_only=True) as store:
        # an output is stored by when it ended, and belongs to the block in which it was admitted
        rows = store.outputs(drawn.start, drawn.end + 3600)
    effect = analyse(
        drawn,
        ((r.admitted, r.replica, r.verdict == "hard") for r in rows if r.random and r.verdict != "unscored"),
    )
    if as_json:
        print_json({**asdict(effect), "words": effect.words()})
    else:
        stderr.print(plain(effect.words()), soft_wrap=True)
