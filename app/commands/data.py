"""Commands that bring data in: back-fill from a Prometheus server, imports of logs and outputs, event markers."""

from __future__ import annotations

import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.commands.context import (
    command,
    note_act,
    open_store,
    plain,
    print_json,
    problem_line,
    progress_bar,
    settings,
    span,
    stderr,
    warn,
)
from core.config import Config, PrometheusSource, section_argument
from core.errors import ConfigError, InputError
from core.incidents import iso
from core.records import Event
from core.times import parse_time

if TYPE_CHECKING:
    from collectors.backfill import BackfillResult
    from collectors.imports import ImportResult

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]


def _report(facts: dict[str, Any], as_json: bool) -> None:
    """Print what an import did: JSON on stdout, or one line on stderr and one for each problem."""
    if as_json:
        print_json(facts)
        return
    hidden = ("error",)  # said at the end
    shown = {
        k: v
        for k, v in facts.items()
        if isinstance(v, (int, str)) and not isinstance(v, bool) and k not in hidden
    }
    words = (
        f"{k.replace('_', ' ')} {v:,}" if isinstance(v, int) else f"{k.replace('_', ' ')} {v}"
        for k, v in shown.items()
    )
    stderr.print(plain(", ".join(words)), soft_wrap=True)
    for problem in facts.get("problems", []):
        stderr.print(plain(f"  {problem_line(problem)}"), soft_wrap=True)


def _imported(result: ImportResult, as_json: bool) -> None:
    """Report an import; InputError for a file that was read from its start and holds nothing of use."""
    _report(result.as_json(), as_json)
    if result.bad and result.bad == result.read - result.blank and not result.resumed_at:
        raise InputError(
            result.file,
            f"not one of {result.read:,} lines could be used",
            "see what is wrong with them above",
        )


def _backfill_facts(result: BackfillResult) -> dict[str, Any]:
    """A back-fill's counts as JSON-ready values; times as ISO 8601."""
    facts = {f.name: getattr(result, f.name) for f in fields(result)}
    for key in ("start", "end", "done", "resumed_from", "newest"):
        facts[key] = iso(facts[key])
    facts["seconds"] = round(result.seconds, 1)
    facts["problems"] = [asdict(p) for p in result.problems]
    facts["error"] = str(result.error) if result.error else None
    facts["complete"] = result.complete
    return facts


def _prometheus(config: Config, url: str | None, selector: str | None) -> PrometheusSource:
    """The source to read: the configured one with that URL (credentials included), else a plain one, else the only one."""
    options = {"url": "--prometheus", "selector": "--selector"}
    known = [s.prometheus for s in config.sources if s.prometheus is not None]
    if url is None:
        if len(known) != 1:
            raise ConfigError(
                "--prometheus",
                f"{len(known)} Prometheus sources are configured",
                "name one with --prometheus URL",
            )
        source = known[0]
    else:
        same = [s for s in known if s.url.rstrip("/") == url.rstrip("/")]
        source = same[0] if same else section_argument(PrometheusSource, {"url": url}, options)
    if selector is None:
        return source
    checked = section_argument(PrometheusSource, {"url": source.url, "selector": selector}, options)
    return source.model_copy(update={"selector": checked.selector})


@command
def backfill(
    start: Annotated[
        str, typer.Option(help="From when: ISO 8601 (UTC where no zone is given) or Unix seconds.")
    ],
    end: Annotated[str, typer.Option(help="Until when, exclusive.")],
    prometheus: Annotated[
        str | None, typer.Option(help="Prometheus-compatible server; else the configured one.")
    ] = None,
    selector: Annotated[
        str | None, typer.Option(help="Series selector, as in PromQL: '{job=\"vllm\"}'.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read history from a Prometheus-compatible server. May be stopped and repeated: nothing is counted twice."""
    from collectors.backfill import backfill as run_backfill
    from collectors.dictionary import load_dictionary
    from core.classes import ClassRules
    from core.roles import Roles

    first, last = span(start, end)
    config = settings.load()
    source = _prometheus(config, prometheus, selector)
    with open_store(config) as store, progress_bar("back-fill") as progress:
        result = run_backfill(
            store,
            source,
            load_dictionary(),
            ClassRules.from_config(config.classes),
            Roles.from_config(config.roles),
            first,
            last,
            progress=progress,
        )
    _report(_backfill_facts(result), as_json)
    if result.error is not None:
        warn(f"stopped at {iso(result.done)}; the same command goes on from there")
        raise result.error


@command
def import_outputs(
    file: Annotated[
        Path,
        typer.Argument(help="JSON lines or one JSON list of outputs; .gz and .zst are read as they are."),
    ],
    format_name: Annotated[
        str, typer.Option("--format", help="gustfront, litellm, langfuse, phoenix, openai, otel, or auto.")
    ] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Import sampled outputs; texts are scored and, unless configured otherwise, dropped. Repeating it adds nothing."""
    from collectors.outputs import import_outputs as run_import
    from collectors.translate import check_format
    from core.classes import ClassRules
    from core.roles import Roles

    config = settings.load()
    with open_store(config) as store, progress_bar(file.name) as progress:
        result = run_import(
            store,
            file,
            ClassRules.from_config(config.classes),
            Roles.from_config(config.roles),
            config=config,
            format_name=check_format(format_name),
            progress=progress,
        )
    _imported(result, as_json)


@command
def import_requests(
    file: Annotated[
        Path, typer.Argument(help="JSON lines, one gateway attempt each; .gz and .zst are read as they are.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Import a gateway log: every attempt, folded into counts a minute. The truth for SLOs, errors and aborts."""
    from collectors.requests import import_requests as run_import
    from core.classes import ClassRules
    from core.roles import Roles

    config = settings.load()
    with open_store(config) as store, progress_bar(file.name) as progress:
        result = run_import(
            store,
            file,
            ClassRules.from_config(config.classes),
            Roles.from_config(config.roles),
            config=config,
            progress=progress,
        )
    _imported(result, as_json)


@command
def mark(
    text: Annotated[str, typer.Argument(help="What happened, for people.")],
    kind: Annotated[str, typer.Option(help="deploy, scale, flag, maintenance, note.")] = "note",
    pool: Annotated[str, typer.Option(help="Where it happened; empty means everywhere.")] = "",
    replica: Annotated[str, typer.Option(help="The replica, if it was one.")] = "",
    at: Annotated[str | None, typer.Option(help="When: ISO 8601 or Unix seconds. Default: now.")] = None,
) -> None:
    """Record an event (a deploy, a flag, a note) so that detectors and charts know of it."""
    ts = parse_time(at, "--at") if at else time.time()
    config = settings.load()
    with open_store(config) as store:
        store.add_events([Event(ts=ts, kind=kind, text=text, pool=pool, replica=replica)])
        note_act(store, "mark", kind, text=text, pool=pool, replica=replica)
    stderr.print("marked")
