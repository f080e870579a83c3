"""The real server in a process of its own, from a folder that is not the checkout."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def running_app(
    config: Path,
    folder: Path,
    *,
    database: str | None = None,
    port: int | None = None,
    first_path: Path | None = None,
) -> Iterator[str]:
    """``uvicorn app.asgi:app`` started in ``folder``; yields its base URL. RuntimeError with its output if it does not start.

    ``first_path`` goes before the checkout on the path: a ``sitecustomize.py`` there is run at the start."""
    port = port or free_port()
    path = os.pathsep.join(str(p) for p in (first_path, ROOT) if p is not None)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GUSTFRONT_")}
    env |= {"GUSTFRONT_CONFIG": str(config), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    if database is not None:
        env["GUSTFRONT_DATABASE"] = database
    log = folder / f"server-{port}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "app.asgi:app", "--port", str(port), "--no-access-log"],
            cwd=folder,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 90
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}")
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
                break
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)
