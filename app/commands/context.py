"""What every command shares: the configuration, the store, output manners and exit codes.

Manners: progress and errors go to stderr; with ``--json`` stdout holds JSON alone. Exit codes: 0 fine, 1 found something,
2 usage or configuration, 3 environment.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from core.config import Config, load_config
from core.errors import GustfrontError
from sql.store import Store

P = ParamSpec("P")
R = TypeVar("R")

stderr = Console(stderr=True, highlight=False)
# A pipe has no width: a table written into a file must not be folded at 80 columns.
stdout = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


@dataclass
class Settings:
    """Global options of the command line."""

    config: str | None = None
    database: str | None = None

    def load(self) -> Config:
        """The configuration in force, with ``--database`` (or $GUSTFRONT_DATABASE) on top."""
        config = load_config(self.config)
        url = self.database or os.environ.get("GUSTFRONT_DATABASE")
        return config.model_copy(update={"database": url}) if url else config


settings = Settings()


def print_json(data: object) -> None:
    """One JSON document on stdout and nothing else."""
    sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turn errors raised on purpose into one line on stderr and the exit code that belongs to them."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except GustfrontError as error:
            stderr.print(f"[red]gustfront:[/red] {escape(str(error))}", soft_wrap=True)
            raise typer.Exit(error.exit_code) from error
        except BrokenPipeError:
            # The reader (head, less) went away: that is its right.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None

    return wrapped


@contextmanager
def open_store(config: Config, *, read_only: bool = False) -> Iterator[Store]:
    """The configured store, closed at the end."""
    with Store.open(config.database, read_only=read_only) as store:
        yield store


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[..., None]]:
    """A bar on stderr; yields ``update(done, total, message)``. Silent where stderr is no terminal."""
    columns: tuple[Any, ...] = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), TextColumn("{task.fields[message]}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=stderr, disable=not stderr.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=1.0, message="")

        def update(done: float, total: float, message: str = "") -> None:
            bar.update(task, completed=done, total=max(total, 1e-9), message=message)

        yield update
