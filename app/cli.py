"""The command line: ``gustfront``. Each command is a thin layer over a service that other modules offer."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, NoReturn

import typer

from app.commands import (
    analyse,
    audit,
    bench,
    calibrate,
    data,
    deliveries,
    demo,
    experiment,
    incidents,
    inspect,
    mcp,
    odd,
    operate,
    outputs,
    quality,
    slo,
    tokens,
)
from app.commands.context import settings

cli = typer.Typer(
    name="gustfront",
    help="Watches LLM inference fleets: what is wrong, where, since when, who is hurt and why.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"gustfront {version('gustfront')}")
        except PackageNotFoundError:
            typer.echo("gustfront (not installed)")
        raise typer.Exit()


@cli.callback()
def options(
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            help="Configuration file. Else $GUSTFRONT_CONFIG, else ./gustfront.yaml, else built in.",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option("--database", help="Database URL, over the configuration's. Else $GUSTFRONT_DATABASE."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Options that hold for every command."""
    settings.config, settings.database = config, database


cli.command("demo")(demo.demo)
cli.command("run")(operate.run)
cli.command("collect")(operate.collect)
cli.command("detect")(operate.detect)
cli.command("deliver")(operate.deliver)
cli.command("serve")(operate.serve)
cli.command("backfill")(data.backfill)
cli.command("import-outputs")(data.import_outputs)
cli.command("import-requests")(data.import_requests)
cli.command("score")(outputs.score)
cli.command("erase")(outputs.erase)
cli.command("canary")(outputs.canary)
cli.add_typer(experiment.experiment_cli, name="experiment")
cli.command("mark")(data.mark)
cli.command("backtest")(analyse.backtest)
cli.add_typer(quality.group, name="analyse")
cli.command("odd")(odd.odd)
cli.add_typer(incidents.incidents_cli, name="incidents")
cli.add_typer(deliveries.deliveries_cli, name="deliveries")
cli.add_typer(slo.slo_cli, name="slo")
cli.add_typer(slo.export_cli, name="export")
cli.command("report")(slo.report)
cli.command("status-page")(slo.status_page)
cli.add_typer(tokens.tokens_cli, name="tokens")
cli.add_typer(audit.audit_cli, name="audit")
cli.add_typer(bench.bench_cli, name="bench")
cli.add_typer(calibrate.quality_cli, name="quality")
cli.command("mcp")(mcp.mcp)
cli.command("check")(inspect.check)
cli.command("doctor")(inspect.doctor)


def main() -> None:
    """Entry point of the ``gustfront`` command. A reader of its output that goes away early (head, less) is no failure."""
    try:
        cli(prog_name="gustfront")
    except BrokenPipeError:
        _leave_quietly()
    except SystemExit as end:
        # Rich turns a closed pipe into exit code 1, which here means "found something".
        if isinstance(end.__context__, BrokenPipeError):
            _leave_quietly()
        raise


def _leave_quietly() -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


if __name__ == "__main__":
    main()
