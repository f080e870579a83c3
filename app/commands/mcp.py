"""``gustfront mcp``: what is wrong and why, for an assistant."""

from __future__ import annotations

import contextlib
import getpass
import logging
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from app.commands.context import command, settings


@command
def mcp(
    texts: Annotated[
        bool,
        typer.Option("--texts", help="Also give texts of model outputs; each look is in the audit log."),
    ] = False,
) -> None:
    """Offer read-only tools to an assistant over standard input and output (Model Context Protocol)."""
    from app.mcp_server import Server, serve
    from app.mcp_tools import Toolbox
    from app.services.people import Principal
    from sql.store import Store

    config = settings.load()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    with contextlib.ExitStack() as stack:

        def open_store(read_only: bool) -> Store:
            return stack.enter_context(Store.open(config.database, read_only=read_only))

        writers: list[Store] = []

        def looking() -> tuple[Store, Principal]:
            if not writers:
                writers.append(open_store(False))
            return writers[0], Principal(getpass.getuser(), "admin", None, "mcp")

        tools = Toolbox(config, lambda: open_store(True), looking if texts else None)
        try:
            release = version("gustfront")
        except PackageNotFoundError:
            release = "0"
        target = sys.stdout.buffer
        with contextlib.redirect_stdout(sys.stderr):  # whatever a library prints, the output is for messages
            serve(Server(tools, release), sys.stdin.buffer, target)
