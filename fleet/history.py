"""A simulated fleet as history, faster than real time: tick by tick for whoever wants the numbers, or as the files of
a labelled scenario (``tsdb.tar.zst``, ``requests.jsonl.zst``, ``gateway.jsonl.zst``, ``truth.json``).
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from core.errors import EnvironmentProblem
from fleet.faces.common import Fleet
from fleet.faces.targets import Exposed, FleetFaces, Seen
from fleet.model import FleetSpec
from fleet.openmetrics import BlockWriter
from fleet.outputs.files import Sampler, attempt, line

EVERY = 15.0
SHARE = 0.25
WINDOW_LOG = 27
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Tick:
    """All targets as a scrape at ``t`` finds them, and what ended since the tick before."""

    t: float
    targets: list[Exposed]
    seen: Seen


def play(sim: Fleet, faces: FleetFaces, until: float, every: float = EVERY) -> Iterator[Tick]:
    """Run the simulation and stop at each multiple of ``every`` after its present moment, up to ``until``.

    What comes before the start that the fleet's specification names is run and not shown.
    """
    if sim.now < sim.spec.start:
        sim.run(sim.spec.start)
        faces.observe()
    t = (sim.now // every + 1) * every
    while t <= until:
        sim.run(t)
        seen = faces.observe()
        yield Tick(t, faces.targets(), seen)
        t += every


class _Log:
    """A .jsonl.zst file."""

    def __init__(self, path: Path) -> None:
        parameters = zstandard.ZstdCompressionParameters.from_level(9, window_log=WINDOW_LOG)
        self._raw = path.open("wb")
        self._packed = zstandard.ZstdCompressor(compression_params=parameters).stream_writer(self._raw)

    def write(self, lines: list[str]) -> None:
        self._packed.write("".join(lines).encode("utf-8"))

    def close(self) -> None:
        self._packed.close()  # type: ignore[no-untyped-call]
        self._raw.close()


def check_folder(folder: Path) -> None:
    """Make ``folder``. EnvironmentProblem where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be written ({error.strerror}). Fix: give a folder in which you may write"
        ) from None


def write_scenario(
    spec: FleetSpec,
    simulate: Callable[[FleetSpec], Fleet],
    folder: Path,
    *,
    share: float | None = None,
    every: float = EVERY,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run ``spec`` from start to end and write it to ``folder``; the truth.

    ``share`` of answers are sampled: a quarter, or half where the scenario is about a load-dependent fault.
    EnvironmentProblem without promtool or where the folder cannot be written.
    """
    if spec.end is None:
        raise ValueError("the fleet has no end")
    check_folder(folder)
    if share is None:
        share = 0.5 if any(f.load_correlated is not None for f in spec.faults) else SHARE
    sim = simulate(spec)
    faces = FleetFaces(sim, edge=False)
    sampler = Sampler(spec.seed, share)
    part = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    try:
        blocks = BlockWriter(part / "tsdb", part)
        requests, gateway = _Log(part / "requests.jsonl.zst"), _Log(part / "gateway.jsonl.zst")
        try:
            for tick in play(sim, faces, spec.end, every):
                for target in tick.targets:
                    blocks.add(tick.t, target)
                requests.write(sampler.lines(tick.seen.finishes))
                gateway.write([line(attempt(a)) for a in tick.seen.attempts])
                if progress is not None:
                    progress((tick.t - spec.start) / (spec.end - spec.start))
            blocks.finish()
        finally:
            requests.close()
            gateway.close()
        _pack(part / "tsdb", part / "tsdb.tar.zst")
        truth = {**sim.truth(), "replicas": sum(p.replicas for p in spec.pools)}
        (part / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", "utf-8")
        for name in ("tsdb.tar.zst", "requests.jsonl.zst", "gateway.jsonl.zst", "truth.json"):
            (part / name).replace(folder / name)
        return truth
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _pack(folder: Path, into: Path) -> None:
    with (
        into.open("wb") as raw,
        zstandard.ZstdCompressor(level=9).stream_writer(raw) as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        tar.add(folder, arcname="tsdb")
