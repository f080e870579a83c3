"""``gustfront run``: collect, detect and serve as child processes that are restarted when they crash and never outlive it.

Each child leads a process group of its own and is tied to this process by :mod:`app.lifeline`. A crashed child is
started again after 1, 2, 4, ... 60 seconds; one that was well for a minute begins at 1 again. SIGINT and SIGTERM
stop all within five seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from app.lifeline import VARIABLE
from core.config_models import Config
from core.errors import EnvironmentProblem

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
GRACE_SECONDS = 3.5
BACKOFF_MAX = 60.0
HEALTHY_SECONDS = 60.0
USAGE_EXIT = 2


@dataclass
class Child:
    """One supervised command: ``module`` run as ``__main__`` with ``arguments``."""

    name: str
    module: str
    arguments: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    started: float = 0.0
    starts: int = 0
    wait: float = 0.0
    again_at: float = 0.0


def check_port(host: str, port: int, patience: float = 1.5) -> None:
    """Raise EnvironmentProblem unless ``host:port`` can be listened on now (or within ``patience`` seconds)."""
    end = time.monotonic() + patience
    while True:
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, proto) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            return
        except socket.gaierror as error:
            raise EnvironmentProblem(
                f"{host}: this address cannot be resolved ({error.strerror}). Fix: give --host an address of this machine"
            ) from None
        except OSError as error:
            if time.monotonic() >= end:
                raise EnvironmentProblem(
                    f"{host}:{port} cannot be listened on ({error.strerror}). Fix: stop what uses the port, or choose another "
                    "with --port or app.port"
                ) from None
        time.sleep(0.1)


class Supervisor:
    """Runs children until a signal, or until one refuses its configuration at its first start."""

    def __init__(
        self,
        children: Sequence[Child],
        *,
        grace: float = GRACE_SECONDS,
        backoff_max: float = BACKOFF_MAX,
        backoff_min: float = 1.0,
    ) -> None:
        self.children = list(children)
        self._grace, self._backoff_max, self._backoff_min = grace, backoff_max, backoff_min
        self._stop = 0
        self._pipe: tuple[int, int] | None = None

    def run(self) -> int:
        """Exit code: 0 after a signal, 2 when a child refused its configuration or usage."""
        before = {
            n: signal.signal(n, self._on_signal) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        self._pipe = os.pipe()
        try:
            while not self._stop:
                for child in self.children:
                    code = self._look_after(child)
                    if code is not None:
                        return code
                time.sleep(0.1)
            return 0
        finally:
            self._end_all()
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop += 1

    def _look_after(self, child: Child) -> int | None:
        now = time.monotonic()
        if child.process is None:
            if now >= child.again_at:
                self._start(child)
            return None
        code = child.process.poll()
        if code is None:
            return None
        self._kill_group(child, signal.SIGKILL)  # what it may have left behind
        child.process = None
        if code == USAGE_EXIT and child.starts == 1:
            return USAGE_EXIT  # it has said why on stderr; starting it again would say it again
        if now - child.started > HEALTHY_SECONDS:
            child.wait = 0.0
        child.wait = max(child.wait, self._backoff_min)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        log.warning("%s %s; it is started again in %g s", child.name, how, child.wait)
        child.again_at = now + child.wait
        child.wait = min(self._backoff_max, child.wait * 2)
        return None

    def _start(self, child: Child) -> None:
        assert self._pipe is not None
        path = os.environ.get("PYTHONPATH", "")
        environment = {
            **os.environ,
            VARIABLE: f"{self._pipe[0]}:{os.getpid()}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT),
        }
        child.process = subprocess.Popen(
            [sys.executable, "-m", "app.lifeline", child.module, *child.arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=(self._pipe[0],),
            process_group=0,
        )
        child.started = time.monotonic()
        child.starts += 1

    def _end_all(self) -> None:
        living = [c for c in self.children if c.process is not None]
        for child in living:
            self._kill_group(child, signal.SIGTERM)
        asked = self._stop
        end = time.monotonic() + self._grace
        while time.monotonic() < end and self._stop <= max(asked, 1):  # a second Ctrl-C does not wait
            if all(c.process is None or c.process.poll() is not None for c in living):
                break
            time.sleep(0.05)
        for child in living:
            self._kill_group(child, signal.SIGKILL)
            if child.process is not None:
                child.process.wait()
                child.process = None

    @staticmethod
    def _kill_group(child: Child, number: signal.Signals) -> None:
        if child.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, number)


def children_of(config: Config, *, host: str, port: int, config_path: str | None = None) -> list[Child]:
    """The commands of one installation, all with the same configuration and database; delivery only where there is a receiver."""
    path = config_path or (str(config.path) if config.path is not None else None)
    common = [*(["--config", path] if path else []), "--database", config.database]
    deliver = [Child("deliver", "app.cli", [*common, "deliver"])] if config.receivers else []
    return [
        Child("collect", "app.cli", [*common, "collect"]),
        Child("detect", "app.cli", [*common, "detect"]),
        *deliver,
        Child("serve", "app.cli", [*common, "serve", "--host", host, "--port", str(port)]),
    ]


def supervise(config: Config, *, host: str, port: int) -> int:
    """Run everything until a signal; the exit code of ``gustfront run``.

    Raises EnvironmentProblem when the port is taken and StoreError when the database cannot be opened, before anything starts.
    """
    check_port(host, port)
    from sql.store import Store

    with Store.open(config.database):  # migrates once, so that the children need not agree on who does
        pass
    return Supervisor(children_of(config, host=host, port=port)).run()
