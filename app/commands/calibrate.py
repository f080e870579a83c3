"""``gustfront quality``: outputs labelled by two people, what their labels say, and a model judge beside them."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from app.commands.acting import actor
from app.commands.context import command, open_store, plain, print_json, settings, span, stderr, stdout

quality_cli = typer.Typer(
    name="quality",
    help="Labels by people and by a model judge: how good are the rules here?",
    no_args_is_help=True,
    rich_markup_mode=None,
)
BatchArgument = Annotated[str, typer.Argument(help="Name of the batch.")]
RaterOption = Annotated[
    str | None, typer.Option("--rater", help="Who labels. Default: the user of this machine.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]


@quality_cli.callback()
def quality() -> None:
    """Labels by people and by a model judge."""


@quality_cli.command("queue")
@command
def queue(
    batch: BatchArgument,
    start: Annotated[str | None, typer.Option(help="From when; only for a new batch.")] = None,
    end: Annotated[str | None, typer.Option(help="Until when, exclusive.")] = None,
    hard: Annotated[int, typer.Option(min=0, help="Outputs with a hard verdict.")] = 40,
    soft: Annotated[int, typer.Option(min=0, help="Outputs with a soft verdict.")] = 40,
    clean: Annotated[int, typer.Option(min=0, help="Outputs without a verdict: recall rests on them.")] = 120,
    as_json: JsonOption = False,
) -> None:
    """Draw outputs to be labelled by two people, or show how far a batch is. Needs kept texts."""
    from app.services import calibration

    with open_store(settings.load()) as store:
        known = store.rating_queue(batch)
        if not known:
            now = time.time()
            first, last = span(start or str(now - 7 * 86400), end or str(now))
            sizes = {"hard": hard, "soft": soft, "clean": clean}
            known = calibration.open_batch(store, batch, first, last, now, sizes)
        done = calibration.agreement(store, batch)
    strata = {s: sum(q.stratum == s for q in known) for s in ("hard", "soft", "clean")}
    if as_json:
        print_json({"batch": batch, "outputs": len(known), "drawn": strata, "labelled": dict(done.by_rater)})
        return
    stdout.print(plain(f"{batch}: {len(known)} outputs ({', '.join(f'{n} {s}' for s, n in strata.items())})"))
    for name, n in done.by_rater.items():
        stdout.print(plain(f"  {name}: {n} of {len(known)} labelled"))


@quality_cli.command("rate")
@command
def rate(batch: BatchArgument, rater: RaterOption = None) -> None:
    """Label the outputs of a batch one by one: d degraded, f fine, u unsure, q leave. Each look is in the audit log."""
    from app.services import calibration

    config, who = settings.load(), actor(rater)
    keys = {"d": "degraded", "f": "fine", "u": "unsure"}
    with open_store(config) as store:
        while True:
            item = calibration.next_for(store, who, config.auth, batch, who.name)
            if item is None:
                stderr.print(plain(f"{who.name} has labelled all of {batch}."))
                return
            stdout.rule(f"{item.place} of {item.total}")
            stdout.print(plain(item.text if item.text is not None else "(the text is gone: label it unsure)"))
            answer = ""
            while answer not in (*keys, "q"):
                answer = typer.prompt("d, f, u or q", err=True).strip().lower()[:1]
            if answer == "q":
                return
            calibration.rate(store, who, batch, item.output, who.name, keys[answer], time.time())


@quality_cli.command("label")
@command
def label(
    batch: BatchArgument,
    output: Annotated[str, typer.Argument(help="Id of the output.")],
    verdict: Annotated[str, typer.Argument(help="degraded, fine or unsure.")],
    rater: RaterOption = None,
) -> None:
    """Store one label, for labels that were given elsewhere."""
    from app.services import calibration

    who = actor(rater)
    with open_store(settings.load()) as store:
        calibration.rate(store, who, batch, output, who.name, verdict, time.time())


@quality_cli.command("agreement")
@command
def agreement(batch: BatchArgument, as_json: JsonOption = False) -> None:
    """Cohen's kappa of the raters, each rule's precision, recall of the hard rules; of a model judge too."""
    from app.services import calibration
    from app.services.wording import percent

    with open_store(settings.load(), read_only=True) as store:
        found = calibration.agreement(store, batch)
    if as_json:
        print_json(calibration.as_json(found))
        return
    for line in calibration.sentences(found):
        stdout.print(plain(line))
    if found.precision:
        table = Table(box=None, pad_edge=False)
        for head in ("rule", "right", "95 %", "of"):
            table.add_column(head)
        for rule, r in found.precision.items():
            table.add_row(rule, percent(r.value), f"{percent(r.low)} to {percent(r.high)}", f"{r.k} of {r.n}")
        stdout.print(table)


@quality_cli.command("judge")
@command
def judge(
    start: Annotated[str, typer.Option(help="From when.")],
    end: Annotated[str, typer.Option(help="Until when, exclusive.")],
    most: Annotated[int, typer.Option(min=1, max=10_000, help="Outputs at most, the newest first.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Ask the configured model judge about suspicious outputs. Off unless quality.judge is configured."""
    import asyncio

    from app.services import judging

    config = settings.load()
    first, last = span(start, end)
    with open_store(config) as store:
        found = asyncio.run(judging.judge(store, config, first, last, most=most))
    if as_json:
        print_json(found.as_json())
        return
    stdout.print(plain(found.sentence()))
