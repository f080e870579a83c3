"""Fixtures for everybody: the shared material, unpacked scenarios, a real Prometheus.

What is not there makes the test skip and say why; nothing is replaced by something simpler.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.servers import find_program, prometheus_server

ROOT = Path(__file__).resolve().parent.parent
PrometheusStarter = Callable[..., AbstractContextManager[str]]


@dataclass(frozen=True)
class Scenario:
    """One labelled history: ``tsdb`` is an unpacked Prometheus TSDB folder; ``requests`` and ``gateway`` are
    .jsonl.zst files;
    ``truth`` is what truth.json says; ``start`` and ``end`` are Unix seconds.
    """

    name: str
    folder: Path
    tsdb: Path
    requests: Path
    gateway: Path
    truth: dict[str, Any]
    start: float
    end: float


def shared_folder() -> Path | None:
    """The shared material: $GUSTFRONT_SHARED, else ``../shared`` beside the checkout; None if absent."""
    folder = Path(os.environ.get("GUSTFRONT_SHARED") or ROOT.parent / "shared")
    return folder if (folder / "scenarios").is_dir() else None


def unpack_scenario(source: Path, into: Path) -> Scenario:
    """Unpack the TSDB of the scenario folder ``source`` below ``into``; other files stay where they are."""
    with (source / "tsdb.tar.zst").open("rb") as packed:
        data = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed).read()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(into, filter="data")
    truth = json.loads((source / "truth.json").read_text())
    return Scenario(
        name=source.name,
        folder=source,
        tsdb=into / "tsdb",
        requests=source / "requests.jsonl.zst",
        gateway=source / "gateway.jsonl.zst",
        truth=truth,
        start=float(truth["start"]),
        end=float(truth["end"]),
    )


@pytest.fixture(autouse=True)
def clean_environ() -> Iterator[None]:
    """What a test leaves in the environment (a command run in this process may) does not reach the next one."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared material; skips where it is absent."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("the shared material is not here (set GUSTFRONT_SHARED)")
    return folder


@pytest.fixture(scope="session")
def scenario(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Scenario]:
    """``scenario("calm-11")``: that history, its TSDB unpacked once a session; skips when it is absent."""
    done: dict[str, Scenario] = {}

    def get(name: str) -> Scenario:
        if name not in done:
            source = shared / "scenarios" / name
            if not (source / "tsdb.tar.zst").is_file():
                pytest.skip(f"scenario {name} is not here")
            done[name] = unpack_scenario(source, tmp_path_factory.mktemp(name))
        return done[name]

    return get


@pytest.fixture(scope="session")
def prometheus_binary() -> str:
    """The path of the Prometheus program; skips where it is not installed."""
    program = find_program("prometheus")
    if program is None or find_program("promtool") is None:
        pytest.skip("prometheus and promtool are not installed")
    return program


@pytest.fixture(scope="session")
def prometheus(prometheus_binary: str) -> PrometheusStarter:
    """``with prometheus(tsdb_dir) as url:`` a real server, ready; see ``servers.prometheus_server``."""
    return prometheus_server
