"""A real PostgreSQL for the tests: its own cluster in a temporary folder, on a free port, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import find_program, free_port


def folder() -> Path | None:
    """The folder of the server's programs, the newest version; None where it is not installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    found = find_program("initdb", *map(str, places))
    return Path(found).resolve().parent if found else None


def account() -> str | None:
    """The user as whom the server must run: PostgreSQL refuses root. None: as ourselves."""
    return "postgres" if os.geteuid() == 0 else None


def missing() -> str:
    """Why PostgreSQL cannot be started here; empty if it can."""
    if folder() is None:
        return "PostgreSQL's initdb is not installed"
    if account() is not None:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "root cannot run PostgreSQL, and there is no user postgres"
    return ""


@contextmanager
def server() -> Iterator[str]:
    """Yields ``postgresql://postgres@127.0.0.1:PORT``; no durability (``fsync`` off), 300 connections."""
    programs = folder()
    assert programs is not None, missing()
    # not below pytest's folder, which only its owner may enter; short, because it holds a socket
    home = Path(tempfile.mkdtemp(prefix="gfpg"))
    user = account()
    if user is not None:
        shutil.chown(home, user)

    def run(*words: str) -> None:
        done = subprocess.run(
            [str(programs / words[0]), *words[1:]],
            user=user,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{words[0]} failed: {done.stdout.decode(errors='replace')}")

    data, port = str(home / "data"), free_port()
    options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=300"
    try:
        run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8")
        # its output goes to a file: a pipe would stay open as long as the server
        run("pg_ctl", "-D", data, "-w", "-l", str(home / "log"), "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
