"""Real servers for tests and benchmarks: started on free loopback ports, waited for, gone afterwards.

Nothing here imitates a server. A test that needs one that misbehaves brings its own.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_TIMEOUT = 30.0


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def find_program(name: str, *places: str) -> str | None:
    """The path of a program on PATH or in one of the given folders; None if it is not installed."""
    found = shutil.which(name)
    return found or next((str(p) for p in (Path(d) / name for d in places) if p.is_file()), None)


def wait_for(
    url: str, process: subprocess.Popen[bytes] | None = None, timeout: float = START_TIMEOUT
) -> bool:
    """Poll ``url`` until it answers 2xx. False when the process ended first; else TimeoutError."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if process is not None and process.poll() is not None:
            return False
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if 200 <= answer.status < 300:
                    return True
        except urllib.error.HTTPError as e:
            e.close()
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer within {timeout:g} s")


def stop(process: subprocess.Popen[bytes], patience: float = 20.0) -> None:
    """End a process we started and wait until it is gone; killed when it does not listen."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def run_server(
    argv: Sequence[str], ready: str, log: Path, timeout: float = START_TIMEOUT
) -> Iterator[subprocess.Popen[bytes] | None]:
    """Run ``argv`` until the block ends; yields None when it ended before ``ready`` answered."""
    with (
        log.open("ab") as out,
        subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            yield process if wait_for(ready, process, timeout) else None
        finally:
            stop(process)


@contextmanager
def prometheus_server(
    tsdb: Path, *, scrape_config: str | None = None, options: Sequence[str] = (), log: Path | None = None
) -> Iterator[str]:
    """A real Prometheus on the TSDB folder ``tsdb`` (made if absent); yields its URL, no trailing slash.

    ``scrape_config`` is the text of a whole prometheus.yml; without it nothing is scraped. ``options`` are
    more command line options, such as ``--query.max-samples=50000``. Two servers cannot share a folder.
    """
    program = find_program("prometheus")
    if program is None:
        raise FileNotFoundError("prometheus is not installed")
    tsdb.mkdir(parents=True, exist_ok=True)
    config = tsdb.parent / f"{tsdb.name}-prometheus.yml"
    config.write_text(scrape_config or "scrape_configs: []\n")
    log = log or tsdb.parent / f"{tsdb.name}-prometheus.log"
    for _ in range(5):  # somebody else may take the port between our look and the start
        url = f"http://127.0.0.1:{free_port()}"
        argv = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={tsdb}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--web.enable-lifecycle",
            "--log.level=warn",
            *options,
        ]
        with run_server(argv, f"{url}/-/ready", log) as process:
            if process is not None:
                yield url
                return
        if "address already in use" not in log.read_text():
            break
    raise RuntimeError(f"prometheus did not start: {log.read_text()[-1000:]}")


@contextmanager
def victoria_server(folder: Path) -> Iterator[str]:
    """A real single-node VictoriaMetrics with its data below ``folder``; yields its URL without a trailing slash."""
    program = find_program("victoria-metrics")
    if program is None:
        raise FileNotFoundError("victoria-metrics is not installed")
    url = f"http://127.0.0.1:{free_port()}"
    argv = [
        program,
        f"-storageDataPath={folder / 'vm'}",
        f"-httpListenAddr={url.removeprefix('http://')}",
        "-retentionPeriod=10y",
        "-search.latencyOffset=0s",
    ]
    with run_server(argv, f"{url}/health", folder / "vm.log") as process:
        if process is None:
            raise RuntimeError(f"victoria-metrics did not start: {(folder / 'vm.log').read_text()[-1000:]}")
        yield url


def build_tsdb(lines: Iterable[str], folder: Path) -> Path:
    """Write a TSDB from OpenMetrics lines ``name{labels} value unix_seconds`` (unsorted, no ``# EOF``).

    Returns the folder, ready for :func:`prometheus_server`. Needs ``promtool``.
    """
    program = find_program("promtool")
    if program is None:
        raise FileNotFoundError("promtool is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder.parent / f"{folder.name}.om"
    families: dict[str, list[str]] = {}
    for line in lines:
        families.setdefault(line.split("{", 1)[0].split(" ", 1)[0], []).append(line)
    body = "".join(f"# TYPE {name} unknown\n" + "\n".join(rows) + "\n" for name, rows in families.items())
    source.write_text(body + "# EOF\n")
    done = subprocess.run(
        [program, "tsdb", "create-blocks-from", "openmetrics", str(source), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"promtool: {done.stdout[-500:]} {done.stderr[-500:]}")
    return folder
