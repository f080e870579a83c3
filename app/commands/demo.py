"""``gustfront demo``: a simulated fleet with everything that is real around it, or a labelled history written to a folder."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import socket
import time
from pathlib import Path
from typing import IO, Annotated

import typer

from app.commands.context import command, progress_bar, settings, stderr
from app.commands.operate import InsecureOption, may_listen
from app.supervisor import Child, Supervisor, check_port, children_of
from core.errors import ConfigError, EnvironmentProblem, StoreError

FOLDER = Path(".gustfront-demo")
CURSOR = "demo"
"""``Store.get_cursor("demo")`` is set in a demonstration's database only: JSON with ``control`` (URL), ``scenario``
and ``since``."""

OURS = ("demo.db", "demo.json", "history.done", "gustfront.yaml", "requests.jsonl", "gateway.jsonl")
"""How the names of the files begin that a demonstration makes and clears away."""

CONFIG = """\
# Written by `gustfront demo`; made anew at each start.
database: {database}
sources:
  - scrape: {{name: demo, http_sd: ["{control}/sd"], every: 15s, timeout: 5s}}
  - requests: {{file: {gateway}}}
  - outputs: {{file: {answers}}}
roles: {{pool: [pool], replica: [instance], gpu_host: [Hostname]}}
classes:
  - {{name: coding-agent, match: ['workload="coding-agent"', 'pool=~"coder-.*"']}}
  - {{name: chat, match: ['workload="chat"', 'pool=~"chat-.*"']}}
  - {{name: batch, match: ['workload="batch"']}}
slos:
  - {{name: coding-agent-ttft, class: coding-agent, signal: ttft_seconds, threshold: 5s, objective_percent: 99, window: 28d}}
  - {{name: chat-ttft, class: chat, signal: ttft_seconds, threshold: 1s, objective_percent: 99, window: 28d}}
  - {{name: batch-ttft, class: batch, signal: ttft_seconds, threshold: 5s, objective_percent: 99, window: 28d}}
outputs: {{store_text: true, text_cap: 2000}}
app: {{host: {host}, port: {port}}}
"""


@command
def demo(
    scenario: Annotated[
        str, typer.Option(help="story, or one of the scenarios; --list names them.")
    ] = "story",
    speed: Annotated[
        float, typer.Option(help="How fast the story goes on; the fleet itself keeps real time.")
    ] = 1.0,
    folder: Annotated[
        Path, typer.Option("--dir", help="Where database, logs and configuration of the demonstration lie.")
    ] = FOLDER,
    host: Annotated[str, typer.Option(help="Address of the screens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the screens.")] = 8501,
    seed: Annotated[int, typer.Option(help="Another seed, another fleet.")] = 7,
    write: Annotated[
        Path | None,
        typer.Option(help="Write the scenario as a labelled history into this folder, and leave."),
    ] = None,
    hours: Annotated[float, typer.Option(help="Length of a written history.")] = 3.0,
    list_: Annotated[bool, typer.Option("--list", help="Name all scenarios and leave.")] = False,
    insecure_listen: InsecureOption = False,
) -> None:
    """Show Gustfront with a simulated fleet of 24 replicas: no GPU and no configuration needed.

    With --write DIR: a labelled history (Prometheus blocks, answers, gateway log, truth) of a scenario.
    """
    from fleet import scenarios

    if list_:
        for name in ["story", *scenarios.names()]:
            typer.echo(name)
        return
    if not speed > 0:
        raise ConfigError(
            "--speed", "must be more than 0", "1 is real time, 4 plays the story four times as fast", speed
        )
    if scenario != "story" and scenario not in scenarios.names():
        raise ConfigError("--scenario", "no such scenario", "one of `gustfront demo --list`", scenario)
    if write is not None:
        _write(scenario, write, seed, hours)
    else:
        raise typer.Exit(_play(scenario, speed, folder, host, port, seed, insecure_listen))


def _write(scenario: str, folder: Path, seed: int, hours: float) -> None:
    from fleet import scenarios
    from fleet.history import write_scenario
    from fleet.simulation import Simulation

    if scenario == "story":
        raise ConfigError("--write", "the story has no end", "name a scenario with --scenario")
    if not 0.25 <= hours <= 48:
        raise ConfigError("--hours", "must lie between 0.25 and 48", "3 is usual", hours)
    spec = scenarios.build(scenario, seed, hours=hours)
    with progress_bar(scenario) as bar:
        truth = write_scenario(spec, Simulation, folder, progress=lambda done: bar(done, 1.0))
    kinds = ", ".join(i["kind"] for i in truth["incidents"]) or "nothing is wrong in it"
    stderr.print(f"{folder}: {scenario}, seed {seed}, {hours:g} h: {kinds}")


# ------------------------------------------------------------------------------------------------------- playing


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def take_folder(folder: Path) -> IO[str]:
    """Make the folder and lock it. EnvironmentProblem where another demonstration has it or it cannot be written."""
    from fleet.history import check_folder

    check_folder(folder)
    try:
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder}/lock cannot be written ({error.strerror}). Fix: choose another folder with --dir"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise EnvironmentProblem(
            f"{folder}: another demonstration is running there. Fix: stop it, or choose another folder with --dir"
        ) from None
    return lock


def clear(folder: Path) -> None:
    """Remove what an earlier demonstration left. EnvironmentProblem for a database that is not a demonstration's."""
    database = folder / "demo.db"
    if database.exists() and not _is_demo(database):
        raise EnvironmentProblem(
            f"{database} is no database of a demonstration of this version, and is left alone. "
            "Fix: move it away, or choose another folder with --dir"
        )
    for path in folder.iterdir():
        if path.name == "lock":
            continue
        if path.is_dir() and path.name.startswith("demo.db"):
            shutil.rmtree(path)
        elif path.is_file() and path.name.startswith(OURS):
            path.unlink()


def _is_demo(database: Path) -> bool:
    from sql.store import Store

    try:
        with Store.open(f"sqlite:///{database}") as store:
            return store.get_cursor(CURSOR) is not None
    except StoreError:
        return False


def _play(
    scenario: str, speed: float, folder: Path, host: str, port: int, seed: int, insecure: bool = False
) -> int:
    from app.demo_fleet import DONE, Orders
    from core.config import Config, load_config
    from sql.store import Store

    if settings.config or settings.database:
        raise ConfigError(
            "--config",
            "the demonstration makes its own configuration",
            "use `gustfront run` with yours",
            settings.config,
        )
    may_listen(Config.built_in(), host, insecure)
    check_port(host, port)
    folder = folder.absolute()
    with take_folder(folder):
        clear(folder)
        orders = Orders(free_port(), scenario, speed, seed)
        control = f"http://127.0.0.1:{orders.port}"
        path = folder / "gustfront.yaml"
        path.write_text(
            CONFIG.format(
                database=json.dumps(f"sqlite:///{folder / 'demo.db'}"),
                control=control,
                gateway=json.dumps(str(folder / "gateway.jsonl")),
                answers=json.dumps(str(folder / "requests.jsonl")),
                host=json.dumps(host),
                port=port,
            ),
            "utf-8",
        )
        orders.write(folder)
        config = load_config(path)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        with Store.open(config.database) as store:
            mark = {"control": control, "scenario": scenario, "since": round(time.time())}
            store.set_cursor(CURSOR, json.dumps(mark))
        for name in ("requests.jsonl", "gateway.jsonl"):
            (folder / name).touch()
        shown = host if host not in ("0.0.0.0", "::") else "127.0.0.1"
        stderr.print(
            f"[bold]A demonstration with a simulated fleet.[/bold] Screens: http://{shown}:{port} "
            f"(history fills in within a minute). Ctrl-C ends it. Files: {folder}"
        )
        collect, detect, serve = children_of(config, host=host, port=port, config_path=str(path))
        fleet = Child("fleet", "app.demo_fleet", [str(folder)])
        os.environ.pop("GUSTFRONT_DATABASE", None)
        return Waiting([serve, fleet, collect, detect], folder / DONE).run()


class Waiting(Supervisor):
    """Collecting and detecting begin when the past is written (``done`` exists)."""

    def __init__(self, children: list[Child], done: Path) -> None:
        super().__init__(children)
        self._done = done

    def _look_after(self, child: Child) -> int | None:
        if child.name in ("collect", "detect") and child.starts == 0 and not self._done.exists():
            return None
        return super()._look_after(child)
