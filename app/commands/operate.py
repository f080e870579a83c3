"""Commands that keep running: collect, detect, deliver and serve, and ``run`` that supervises the three."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Annotated

import typer

from app.commands.context import command, settings
from core.config import Config

HostOption = Annotated[
    str | None, typer.Option(help="Address to listen on. Default: the configuration's, else 127.0.0.1.")
]
PortOption = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Port to listen on. Default: the configuration's, else 8501."),
]
ShardOption = Annotated[
    str,
    typer.Option(
        metavar="NUMBER/OF",
        help="Read only this share of the sources, such as 3/8: one of eight collectors that together read each once.",
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure-listen",
        help="Listen beyond loopback, and behind a proxy, without auth: whoever reaches the port may do everything.",
    ),
]


def may_listen(config: Config, host: str, insecure: bool) -> None:
    """ConfigError where ``host`` lies beyond loopback and nobody would be asked who they are; children inherit ``insecure``."""
    from app.listen import INSECURE, check_listen

    check_listen(config, host, insecure=insecure)
    if insecure:
        os.environ[INSECURE] = "1"


def _stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set, so that a service leaves between two commits."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


@command
def collect(shard: ShardOption = "1/1") -> None:
    """Scrape targets, read Prometheus servers and follow logs, into the database."""
    from collectors.service import run_collect
    from collectors.shards import Shard

    part = Shard.parse(shard)
    asyncio.run(run_collect(settings.load(), _stop_on_signals(), part))


@command
def detect() -> None:
    """Run the detectors each tick over what the collectors stored, and keep the incidents."""
    from detectors.service import run_detect

    run_detect(settings.load(), _stop_on_signals())


@command
def deliver() -> None:
    """Tell receivers of incidents and deploys, until stopped; of several such processes one delivers."""
    from app.delivery.dispatcher import run_deliver

    run_deliver(settings.load(), _stop_on_signals())


@command
def serve(host: HostOption = None, port: PortOption = None, insecure_listen: InsecureOption = False) -> None:
    """Serve the screens and the REST API from the database."""
    config = settings.load()
    may_listen(config, host or config.app.host, insecure_listen)
    if settings.config:
        os.environ["GUSTFRONT_CONFIG"] = settings.config
    os.environ["GUSTFRONT_DATABASE"] = config.database
    from app.server import run_server

    run_server(host or config.app.host, port or config.app.port)


@command
def run(host: HostOption = None, port: PortOption = None, insecure_listen: InsecureOption = False) -> None:
    """Collect, detect, deliver and serve, each in a process of its own that ends with this one."""
    from app.supervisor import supervise

    config = settings.load()
    may_listen(config, host or config.app.host, insecure_listen)
    raise typer.Exit(supervise(config, host=host or config.app.host, port=port or config.app.port))
