"""``gustfront deliveries``: what receivers were told and what waits, a test of one, another try."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from app.commands.acting import actor
from app.commands.context import command, open_store, plain, print_json, settings, stderr, stdout, warn
from app.services.wording import instant
from core.deliveries import Delivery

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]

deliveries_cli = typer.Typer(
    invoke_without_command=True,
    help="What receivers were told and what waits, newest first; test a receiver; try again.",
)


@deliveries_cli.callback(invoke_without_command=True)
@command
def deliveries(ctx: typer.Context) -> None:
    """List deliveries, newest first, and how each receiver stands; or test a receiver, or try again."""
    if ctx.invoked_subcommand is None:
        _list(None, None, None, 20, False)


@deliveries_cli.command("list")
@command
def list_(
    receiver: Annotated[str | None, typer.Option(help="Only to this receiver.")] = None,
    state: Annotated[str | None, typer.Option(help="Only pending, sent or parked (refused) ones.")] = None,
    incident: Annotated[str | None, typer.Option(help="Only about this incident.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List deliveries, newest first, below how each receiver stands. Exit code 1 where one fails or delivery is not running."""
    _list(receiver, state, incident, limit, as_json)


def _list(receiver: str | None, state: str | None, incident: str | None, limit: int, as_json: bool) -> None:
    from app.services.deliveries import check_state, delivery_json, not_running, receivers

    config, now = settings.load(), time.time()
    with open_store(config, read_only=True) as store:
        known = receivers(store, config, now)
        stopped = not_running(store, config, now)
        rows = store.delivery_page(limit=limit, receiver=receiver, state=check_state(state), subject=incident)
    if as_json:
        print_json(
            {
                "stopped": stopped or None,
                "receivers": [r.as_json() for r in known],
                "deliveries": [delivery_json(d) for d in rows],
            }
        )
    else:
        table = _table("receiver", "kind", "to", "state", "", "error")
        for r in known:
            table.add_row(*map(plain, (r.name, r.kind, r.where, r.state, r.words(now), r.error)))
        if known:
            stdout.print(table)
        else:
            stdout.print(plain("No receiver is configured: nobody is told of anything (docs/delivery.md)."))
        if rows:
            stdout.print(_rows(rows))
        else:
            stdout.print(plain("No delivery."))
        if stopped:
            warn(stopped)
    if stopped or any(r.state in ("failing", "parked") for r in known):
        raise typer.Exit(1)


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _rows(rows: list[Delivery]) -> Table:
    table = _table("id", "made", "receiver", "action", "state", "tried", "what", "error")
    for d in rows:
        shown = (
            d.id,
            instant(d.made_at),
            d.receiver,
            d.action,
            d.state,
            d.attempts,
            d.message.get("title", ""),
            d.error,
        )
        table.add_row(*map(plain, shown))
    return table


@deliveries_cli.command("test")
@command
def send_test_message(
    receiver: Annotated[str, typer.Argument(help="Name of a receiver, as in the configuration.")],
    as_json: JsonOption = False,
) -> None:
    """Send a test message to a receiver now. Exit code 1 where it is not taken."""
    from app.services.deliveries import delivery_json, send_test

    config = settings.load()
    with open_store(config) as store:
        done = send_test(store, config, receiver, actor(None))
    if as_json:
        print_json(delivery_json(done))
    elif done.state == "sent":
        stderr.print(plain(f"{receiver} has taken the test message"), soft_wrap=True)
    else:
        stderr.print(plain(f"{receiver} has not taken the test message: {done.error}"), soft_wrap=True)
    if done.state != "sent":
        raise typer.Exit(1)


@deliveries_cli.command("retry")
@command
def retry_delivery(
    delivery: Annotated[str, typer.Argument(help="Id of a delivery, or the beginning of one.")] = "",
    receiver: Annotated[str, typer.Option(help="Instead: everything that this receiver has refused.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Try a delivery again that was refused or waits; the running dispatcher sends it."""
    from app.services.deliveries import delivery_json, retry

    with open_store(settings.load()) as store:
        found = retry(store, actor(None), delivery=delivery, receiver=receiver)
    if as_json:
        print_json([delivery_json(d) for d in found])
    else:
        n = len(found)
        stderr.print(plain(f"{n} {'delivery is' if n == 1 else 'deliveries are'} tried again"))
