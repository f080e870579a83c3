"""What every command shares: the configuration, the store, output manners and exit codes.

Manners: progress and errors go to stderr; with ``--json`` stdout holds JSON alone. Exit codes: 0 fine, 1 found something,
2 usage or configuration, 3 environment; 130 where a person pressed Ctrl-C. Never a traceback, unless
``$GUSTFRONT_TRACEBACK`` asks for one.
"""

from __future__ import annotations

import functools
import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from core.config import Config, database_argument, load_config
from core.errors import ConfigError, EnvironmentProblem, GustfrontError
from core.times import parse_time
from sql.store import Store

TRACEBACK = "GUSTFRONT_TRACEBACK"

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
        environment = os.environ.get("GUSTFRONT_DATABASE")
        for url, origin in ((self.database, "--database"), (environment, "$GUSTFRONT_DATABASE")):
            if url:
                return config.model_copy(update={"database": database_argument(url, origin)})
        return config


settings = Settings()


def print_json(data: object) -> None:
    """One JSON document on stdout and nothing else."""
    sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


# Control characters (a terminal obeys escape sequences) and marks that reverse the direction of what follows.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: object) -> Text:
    """Words from outside for a terminal: no markup, nothing that a terminal would obey."""
    return Text(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", str(text)))


def warn(text: str) -> None:
    """One line on stderr, never read as markup."""
    shown = plain(text)
    shown.stylize("yellow")
    stderr.print(shown, soft_wrap=True)


def problem_line(problem: Mapping[str, Any]) -> str:
    """A problem (as JSON) for people: what, how often, and what to do about it."""
    times = f" ({problem['count']:,} times)" if problem.get("count", 1) > 1 else ""
    message = " ".join(str(problem["message"]).split()).rstrip(".")
    subject = str(problem.get("subject", ""))
    where = f"{subject}: " if subject and not message.startswith(subject) else ""
    fix = str(problem.get("fix", ""))
    return f"{problem['code']}: {where}{message}{times}." + (f" {fix[:1].upper()}{fix[1:]}" if fix else "")


def span(start: str, end: str) -> tuple[float, float]:
    """``--start`` and ``--end`` as Unix seconds; ConfigError where one is no time or the second is not later."""
    first, last = parse_time(start, "--start"), parse_time(end, "--end")
    if last <= first:
        raise ConfigError("--end", "is not after --start", "give a later time", end)
    return first, last


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turn errors raised on purpose into one line on stderr and the exit code that belongs to them."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except GustfrontError as error:
            raise _leave(error) from error
        except KeyboardInterrupt:
            warn("stopped; what was stored stays, and the same command goes on from there")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise  # the reader of stdout (head, less) went away; app.cli.main leaves quietly
        except OSError as error:
            if os.environ.get(TRACEBACK):
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise _leave(EnvironmentProblem(f"{where}{error.strerror or error}")) from error
        except Exception as error:
            if os.environ.get(TRACEBACK):
                raise
            text = f"internal error ({type(error).__name__}: {str(error)[:300]})"
            fix = f"please report it, with what the same command prints under {TRACEBACK}=1"
            raise _leave(EnvironmentProblem(f"{text}. Fix: {fix}")) from error

    return wrapped


def _leave(error: GustfrontError) -> typer.Exit:
    """Say what is wrong on stderr; the exit with its code."""
    stderr.print(Text("gustfront:", style="red"), plain(error), soft_wrap=True)
    return typer.Exit(error.exit_code)


@contextmanager
def open_store(config: Config, *, read_only: bool = False) -> Iterator[Store]:
    """The configured store, closed at the end."""
    with Store.open(config.database, read_only=read_only) as store:
        yield store


def note_act(store: Store, action: str, subject: str = "", by: str = "", **detail: object) -> None:
    """A line in the audit log for what the user of this machine did by a command, in the name of ``by``; ``store`` can write."""
    from app.services import audit
    from app.services.people import Principal

    name = getpass.getuser()
    given = {k: v for k, v in detail.items() if v not in (None, "", [], ())}
    if by and by != name:
        given["in_the_name_of"] = by
    audit.record(store, Principal(name, "admin", None, "command"), action, subject, detail=given)


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
