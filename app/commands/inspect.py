"""Commands that look before anything is stored: is the configuration right, what does a target really export."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from app.commands.context import command, plain, print_json, problem_line, settings, stdout, warn
from core.errors import InputError

NOTHING = (
    "No target: the configuration names no scrape or Prometheus source. Name a URL or file, or add sources "
    "(gustfront.example.yaml shows how)."
)

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]


@command
def check(as_json: JsonOption = False) -> None:
    """Read the configuration and say what it means, or what is wrong with it (exit code 2)."""
    config = settings.load()
    facts = {
        "configuration": str(config.path) if config.path else "built in",
        "database": config.database_shown,
        "sources": len(config.sources),
        "classes": [one.name for one in config.classes],
        "slos": [one.name for one in config.slos],
        "receivers": [one.name for one in config.receivers],
        "listens": f"{config.app.host}:{config.app.port}",
        "auth": config.auth.mode,
    }
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
        stdout.print(plain(f"{key:14s} {shown}"))
    if config.auth.mode == "none" and config.app.insecure_listen:
        warn(
            "app.insecure_listen: whoever reaches the port may do everything. Fix: set auth.mode to proxy or oidc"
        )
    if not config.sources:
        stdout.print(
            plain("No source is configured: nothing will be collected. gustfront.example.yaml shows how.")
        )


def _is_config(subject: str) -> bool:
    return Path(subject).suffix in (".yaml", ".yml")


def _print_target(report: dict[str, Any]) -> None:
    stdout.print(
        plain(
            f"{report['target']}: {', '.join(report['components']) or 'unknown'} {report.get('version') or ''}".rstrip()
        )
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for head in ("signal", "found in", "value"):
        table.add_column(head, overflow="fold")
    for name, found in sorted(report["signals"].items()):
        value = found.get("value", found.get("count"))
        table.add_row(
            plain(name),
            plain(found.get("family", "")),
            plain("no value" if value is None else value),
        )
    for missing in report["missing"]:
        table.add_row(
            plain(missing["id"]),
            plain("missing"),
            plain(missing.get("flag") or "not exported by this engine"),
        )
    if table.row_count:
        stdout.print(table)
    for ambiguous in report["ambiguous"]:
        also = ", ".join(ambiguous["also"])
        stdout.print(plain(f"  ambiguous: {ambiguous['id']} read from {ambiguous['family']}; also in {also}"))
    for dropped in report["dropped"]:
        stdout.print(plain(f"  dropped: {dropped['count']:,} {dropped['reason']}"))
    for problem in report["problems"]:
        stdout.print(plain(f"  problem: {problem_line(problem)}"), soft_wrap=True)


@command
def doctor(
    subject: Annotated[
        str | None,
        typer.Argument(
            help="A target's URL, a file of metrics text, or a configuration (.yaml). Default: the configuration."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a target exports, as Gustfront reads it: signals found, missing (and the flag that exports them), dropped."""
    from collectors.probe import probe_config, probe_file, probe_url
    from core.classes import ClassRules
    from core.config import load_config
    from core.roles import Roles

    config = load_config(subject) if subject and _is_config(subject) else settings.load()
    rules = (ClassRules.from_config(config.classes), Roles.from_config(config.roles))
    if subject is None or _is_config(subject):
        reports = probe_config(config, *rules)
    elif re.match(r"https?://", subject):
        reports = [probe_url(subject, *rules)]
    elif subject and Path(subject).exists():
        reports = [probe_file(Path(subject), *rules)]
    else:
        raise InputError(
            subject or "the subject",
            "is neither a file nor a URL",
            "give a path that exists or http://host:port/metrics",
        )
    if as_json:
        print_json({"targets": reports})
    else:
        for report in reports:
            _print_target(report)
        if not reports:
            stdout.print(plain(NOTHING))
    if any(report["problems"] for report in reports):
        raise typer.Exit(1)
