"""``gustfront slo``: how the objectives stand, and objectives in and out."""

from __future__ import annotations

import getpass
import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.table import Table

from app.commands.analyse import JsonOption
from app.commands.context import (
    command,
    note_act,
    open_store,
    plain,
    print_json,
    settings,
    span,
    stderr,
    stdout,
)
from core.errors import ConfigError, InputError
from core.incidents import iso
from core.times import parse_duration, parse_time

slo_cli = typer.Typer(invoke_without_command=True, help="How the objectives stand; objectives in and out.")


@slo_cli.callback(invoke_without_command=True)
@command
def slo(
    ctx: typer.Context,
    as_of: Annotated[str | None, typer.Option(help="At what time: default the newest data.")] = None,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="Exit with 1 where a budget is certainly spent: for release pipelines."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Attainment, budget left, burn and forecast of every objective; --gate fails where a budget is spent."""
    if ctx.invoked_subcommand is not None:
        return
    from app.services.slo_report import lines

    config = settings.load()
    at = parse_time(as_of, "--as-of") if as_of else None
    with open_store(config, read_only=True) as store:
        found = lines(store, config, at)
    spent = [one for one in found if one["spent"]]
    if as_json:
        print_json(found)
    elif not found:
        stdout.print("No objective is configured. `gustfront slo propose` makes some from your own history.")
    else:
        stdout.print(_table(found))
    if gate and spent:
        names = ", ".join(one["name"] for one in spent)
        stderr.print(plain(f"gustfront: the budget is spent: {names}"), soft_wrap=True)
        raise typer.Exit(1)


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in (
        "objective",
        "class",
        "attained",
        "state",
        "budget left",
        "burn, last hour",
        "forecast",
        "coverage",
    ):
        table.add_column(head, overflow="fold")
    for one in found:
        cells = [one["name"], one["class"], one["attained"], one["state"], one["budget_left_text"]]
        cells += [one["burn_text"], one["forecast"], one["coverage_text"]]
        table.add_row(*(plain(c) for c in cells))
    return table


@slo_cli.command("export")
@command
def export_openslo(
    out: Annotated[Path | None, typer.Option(help="File to write. Default: stdout.")] = None,
) -> None:
    """Write the configured objectives as OpenSLO documents."""
    from core.openslo import dump

    config = settings.load()
    _write(dump(config.slos), out)


@slo_cli.command("import")
@command
def import_openslo(
    file: Annotated[Path, typer.Argument(help="OpenSLO file (YAML, one or more documents).")],
    out: Annotated[Path | None, typer.Option(help="File to write. Default: stdout.")] = None,
) -> None:
    """Turn an OpenSLO file into the slos: block of gustfront.yaml; what cannot be taken over is said, never guessed."""
    from core.openslo import entry, load

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(file), f"cannot be read: {error}", "give the path of a YAML file") from None
    found, skipped = load(text, str(file))
    for one in skipped:
        stderr.print(plain(f"left out: {one}"), soft_wrap=True)
    if not found:
        raise InputError(str(file), "holds no objective", "give documents of kind: SLO")
    _write(yaml.safe_dump({"slos": [entry(s) for s in found]}, sort_keys=False, allow_unicode=True), out)


@slo_cli.command("propose")
@command
def propose(
    days: Annotated[float, typer.Option(min=0.01, max=400, help="Days of own history to look at.")] = 14.0,
    as_of: Annotated[str | None, typer.Option(help="Up to when: default the newest data.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Propose objectives from own history: what 99 % of the requests of each class kept; seeds where there is none."""
    from app.services.propose import propose as from_history
    from app.services.propose import seeds
    from core.openslo import entry

    config = settings.load()
    with open_store(config, read_only=True) as store:
        newest = store.newest() or time.time()
        end = parse_time(as_of, "--as-of") if as_of else math.floor(newest / 60) * 60 + 60
        found = from_history(store, tuple(config.slos), end, days=days)
    rows = [{"slo": entry(p.slo), "reason": p.reason, "n": p.n, "configured": p.configured} for p in found]
    unseen = set(config.class_names) - {p.slo.class_ for p in found}
    for name in sorted(unseen):
        why = "no history: a seed from public practice"
        rows += [{"slo": entry(s), "reason": why, "n": 0, "configured": False} for s in seeds(name)]
    if as_json:
        print_json(rows)
        return
    stdout.print("slos:")
    for row in rows:
        mark = " (one on this signal is configured)" if row["configured"] else ""
        stdout.print(plain(f"  # {row['reason']}{mark}"), soft_wrap=True)
        text = yaml.safe_dump(row["slo"], sort_keys=False, default_flow_style=True, width=1000).strip()
        stdout.print(plain(f"  - {text}"), soft_wrap=True)


@slo_cli.command("exclude")
@command
def exclude(
    start: Annotated[str, typer.Option(help="From when.")],
    end: Annotated[str, typer.Option(help="Until when, exclusive.")],
    reason: Annotated[str, typer.Option(help="Why this time does not count.")],
    class_: Annotated[str, typer.Option("--class", help="Only this class.")] = "",
    pool: Annotated[str, typer.Option(help="Only this pool.")] = "",
    slo: Annotated[str, typer.Option(help="Only this objective.")] = "",
    author: Annotated[str | None, typer.Option(help="Who says so. Default: the user.")] = None,
) -> None:
    """Exclude time (maintenance, a load test) from objectives, with author and reason; it stays on record."""
    from sql.objectives import Exclusion

    config = settings.load()
    first, last = span(start, end)
    if not reason.strip():
        raise ConfigError("--reason", "is empty", "say why this time does not count")
    for option, value, known in (
        ("--class", class_, config.class_names),
        ("--slo", slo, [s.name for s in config.slos]),
    ):
        if value and known and value not in known:
            raise ConfigError(option, "is not configured", f"one of {', '.join(known)}", value)
    who = author or getpass.getuser()
    one = Exclusion(first, last, who, reason.strip(), class_, pool, slo, time.time())
    with open_store(config) as store:
        made = store.add_exclusion(one)
        note_act(store, "exclude", made, who, start=start, end=end, reason=one.reason, slo=slo, pool=pool)
        stdout.print(made)


@slo_cli.command("exclusions")
@command
def exclusions(
    withdraw: Annotated[str | None, typer.Option(help="Id of an exclusion to take back.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List exclusions, those taken back too; or take one back."""
    config = settings.load()
    with open_store(config, read_only=withdraw is None) as store:
        if withdraw is not None and not store.withdraw_exclusion(withdraw, getpass.getuser(), time.time()):
            raise InputError(
                "--withdraw", "no exclusion of that id is in force", "see gustfront slo exclusions"
            )
        if withdraw is not None:
            note_act(store, "withdraw exclusion", withdraw)
        found = store.exclusions(withdrawn=True)
    rows = [
        {
            "id": e.id,
            "start": iso(e.start),
            "end": iso(e.end),
            "class": e.class_,
            "pool": e.pool,
            "slo": e.slo,
            "author": e.author,
            "reason": e.reason,
            "withdrawn_by": e.withdrawn_by,
            "withdrawn_at": iso(e.withdrawn_at),
        }
        for e in found
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        what = ", ".join(f"{k} {row[k]}" for k in ("class", "pool", "slo") if row[k]) or "everything"
        back = f" (taken back by {row['withdrawn_by']})" if row["withdrawn_at"] else ""
        stdout.print(
            plain(
                f"{row['id']}  {row['start']} to {row['end']}  {what}  {row['author']}: {row['reason']}{back}"
            ),
            soft_wrap=True,
        )
    if not rows:
        stdout.print("No exclusion.")


def _write(text: str, out: Path | None) -> None:
    if out is None:
        stdout.print(plain(text.rstrip("\n")), soft_wrap=True)
    else:
        out.write_text(text, "utf-8")
        stderr.print(plain(str(out)))


# -------------------------------------------------------------------------------------------------------------- export

export_cli = typer.Typer(no_args_is_help=True, help="Write what other systems read.")


@export_cli.callback()
def _export() -> None:
    """Write what other systems read."""


@export_cli.command("prometheus-rules")
@command
def prometheus_rules(
    out: Annotated[Path | None, typer.Option(help="File to write. Default: stdout.")] = None,
) -> None:
    """Write recording and burn-rate alerting rules for Prometheus, so that a team can page from its own stack."""
    from app.services.prometheus_rules import make
    from core.errors import StoreError

    config = settings.load()
    try:
        with open_store(config, read_only=True) as store:
            rules = make(store, config)
    except StoreError as error:
        stderr.print(plain(f"without history ({error}): rules for the usual engines"), soft_wrap=True)
        rules = make(None, config)
    for name, why in rules.left_out.items():
        stderr.print(plain(f"left out: {name}: {why}"), soft_wrap=True)
    _write(rules.text(), out)


# ------------------------------------------------------------------------------------------------------------- reports


@command
def report(
    month: Annotated[str, typer.Option(help="The month, such as 2026-09.")],
    out: Annotated[Path, typer.Option(help="Folder to write into; made if absent.")],
    gpu_price: Annotated[
        float | None, typer.Option(min=0, help="Price of a GPU hour, for the price of a million tokens.")
    ] = None,
    currency: Annotated[str, typer.Option(help="Currency of the price.")] = "EUR",
    classes: Annotated[list[str] | None, typer.Option("--class", help="Only these classes.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a month's report per class as HTML (with a print style), CSV and JSON; a closed month is frozen with it."""
    from app.services.month_report import month_report
    from app.services.month_text import write_report
    from core.windows import month_span

    config = settings.load()
    month_span(month)
    out.mkdir(parents=True, exist_ok=True)
    with open_store(config) as store:
        made = month_report(store, config, month, gpu_price=gpu_price, currency=currency, classes=classes)
    files = write_report(made, out)
    if as_json:
        print_json({"files": [str(f) for f in files]})
    else:
        for f in files:
            stdout.print(plain(str(f)), soft_wrap=True)


@command
def status_page(
    out: Annotated[Path, typer.Option(help="Folder to write into; made if absent.")],
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Service status",
    days: Annotated[str, typer.Option(help="How far back incidents are shown.")] = "90d",
) -> None:
    """Write a static status page that does not flatter: p99, attainment, degraded rate, incidents; no internal names."""
    from app.services.status_page import status_html

    config = settings.load()
    out.mkdir(parents=True, exist_ok=True)
    with open_store(config, read_only=True) as store:
        text = status_html(store, config, title=title, days=parse_duration(days, "--days") / 86400)
    path = out / "index.html"
    path.write_text(text, "utf-8")
    stdout.print(plain(str(path)), soft_wrap=True)
