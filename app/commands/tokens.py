"""``gustfront tokens``: API tokens for programs; each is shown once and kept as a digest."""

from __future__ import annotations

import getpass
import time
from typing import Annotated

import typer
from rich.table import Table

from app.commands.context import command, open_store, plain, print_json, settings, stderr, stdout
from core.errors import ConfigError
from core.incidents import iso
from core.times import parse_duration, parse_time

tokens_cli = typer.Typer(no_args_is_help=True, help="API tokens for programs: make, list, revoke.")

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]


@tokens_cli.callback()
def _tokens() -> None:
    """API tokens for programs: make, list, revoke."""


@tokens_cli.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(help="What it is for, such as gateway or ci.")],
    scopes: Annotated[
        str,
        typer.Option(help="What it may, by commas, such as outputs:write,outcomes:write; see docs/api.md."),
    ],
    role: Annotated[str, typer.Option(help="viewer, responder or admin: the most it may.")] = "viewer",
    expires: Annotated[
        str, typer.Option(help="How long it holds, such as 90d; or until when; or never.")
    ] = "90d",
    as_json: JsonOption = False,
) -> None:
    """Make a token and show it, once."""
    from app.services import audit, tokens
    from app.services.people import Principal

    now = time.time()
    wanted = [s.strip() for s in scopes.split(",") if s.strip()]
    config, who = settings.load(), getpass.getuser()
    with open_store(config) as store:
        token, row = tokens.create(
            store, name, role=role, scopes=wanted, made_by=who, expires_at=_expiry(expires, now), now=now
        )
        detail = {"name": row.name, "role": row.role, "scopes": row.scopes, "expires_at": iso(row.expires_at)}
        audit.record(
            store, Principal(who, "admin", None, "command"), "create token", tokens.shown(row), detail=detail
        )
    if as_json:
        print_json({"token": token, **tokens.as_json(row, now)})
        return
    stdout.print(plain(token), soft_wrap=True)
    until = iso(row.expires_at) or "it is revoked"
    stderr.print(
        plain(f"It is shown this once. It holds until {until}; to end it: gustfront tokens revoke {row.id}"),
        soft_wrap=True,
    )


def _expiry(text: str, now: float) -> float | None:
    if text == "never":
        return None
    try:
        return now + parse_duration(text, "--expires")
    except ConfigError:
        try:
            return parse_time(text, "--expires")
        except ConfigError:
            raise ConfigError(
                "--expires", "is neither a duration nor a time", "write 90d, 2027-01-31 or never", text
            ) from None


@tokens_cli.command("list")
@command
def list_tokens(as_json: JsonOption = False) -> None:
    """List all tokens, those revoked and expired too, without their secrets."""
    from app.services import tokens

    now = time.time()
    with open_store(settings.load(), read_only=True) as store:
        found = [tokens.as_json(row, now) for row in store.tokens()]
    if as_json:
        print_json(found)
        return
    if not found:
        stdout.print("No token. `gustfront tokens create NAME --scopes …` makes one.")
        return
    table = Table(box=None, pad_edge=False)
    for head in ("token", "name", "role", "scopes", "state", "made", "expires", "last used"):
        table.add_column(head, overflow="fold")
    for one in found:
        used = f"{one['last_used_at']} from {one['last_used_from']}" if one["last_used_at"] else "never"
        cells = [one["prefix"], one["name"], one["role"], " ".join(one["scopes"]), one["state"]]
        cells += [f"{one['made_at']} by {one['made_by']}", one["expires_at"] or "never", used]
        table.add_row(*(plain(c) for c in cells))
    stdout.print(table)


@tokens_cli.command("revoke")
@command
def revoke(
    token: Annotated[str, typer.Argument(help="Id of the token, or its name where one alone has it.")],
) -> None:
    """Revoke a token: from now on every request with it is refused."""
    from app.services import audit, tokens
    from app.services.people import Principal

    who = getpass.getuser()
    with open_store(settings.load()) as store:
        row = tokens.revoke(store, token, who)
        audit.record(
            store,
            Principal(who, "admin", None, "command"),
            "revoke token",
            tokens.shown(row),
            detail={"name": row.name},
        )
    stderr.print(plain(f"{row.name} ({tokens.shown(row)}) is revoked"), soft_wrap=True)
