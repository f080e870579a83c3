"""Simulated histories in databases, made once and kept: ``python -m bench.histories [SCENARIO ...] [--seeds 1 2] [--jobs N]``.

A history is named by scenario, seed, length, size and the simulator's own code, so a changed simulator makes new ones and
an interrupted run goes on where it stopped. They lie in ``$GUSTFRONT_HISTORIES`` (default: ``gustfront-histories`` in the
folder for temporary files). What is stored went through the collectors of that day: remove the folder after changing those.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from app.commands.demo import CONFIG
from app.fleet_ingest import Gather, tools_of
from bench import kept_schema
from collectors.outputs import import_outputs
from collectors.requests import import_requests
from core.classes import ClassRules
from core.config import Config, load_config
from core.roles import Roles
from fleet import scenarios
from fleet.faces.targets import FleetFaces
from fleet.history import play
from fleet.model import FleetSpec
from fleet.outputs.files import Sampler, attempt, line
from fleet.simulation import Simulation
from sql.store import Store

ROOT = Path(__file__).resolve().parent.parent
HOURS, MOST = 1.25, 8
FLUSH = 4000


@dataclass(frozen=True, slots=True)
class History:
    """One on disk: ``config`` opens its database ``sqlite:///…/fleet.db``, ``truth`` is what really happened."""

    name: str
    seed: int
    folder: Path
    truth: dict[str, Any]

    @property
    def config(self) -> Config:
        """Classes, objectives and database, as the demonstration has them."""
        known = configuration(self.folder)
        path = kept_schema.fitting(self.folder)
        return known.model_copy(update={"database": f"sqlite:///{path}"})


def home() -> Path:
    """Where histories are kept."""
    known = os.environ.get("GUSTFRONT_HISTORIES")
    return Path(known) if known else Path(tempfile.gettempdir()) / "gustfront-histories"


def configuration(folder: Path) -> Config:
    """The demonstration's classes and objectives, over a database in ``folder``."""
    path = folder / "gustfront.yaml"
    if not path.exists():
        path.write_text(
            CONFIG.format(
                database=json.dumps(f"sqlite:///{folder / 'fleet.db'}"),
                control="http://127.0.0.1:9",
                gateway=json.dumps(str(folder / "gateway.jsonl")),
                answers=json.dumps(str(folder / "requests.jsonl")),
                host="127.0.0.1",
                port=8501,
            ),
            "utf-8",
        )
    return load_config(path)


def fill(spec: FleetSpec, folder: Path, config: Config, store: Store) -> dict[str, Any]:
    """Simulate ``spec`` into the store, answers and gateway log through the importers; the truth."""
    assert spec.end is not None
    sim = Simulation(spec)
    faces = FleetFaces(sim, edge=False)
    source = next(s.scrape for s in config.sources if s.scrape is not None)
    gather = Gather(tools_of(config), source, "127.0.0.1:9")
    share = 0.5 if any(f.load_correlated is not None for f in spec.faults) else 0.25
    sampler = Sampler(spec.seed, share)
    pending = 0
    with (
        (folder / "requests.jsonl").open("w", encoding="utf-8") as answers,
        (folder / "gateway.jsonl").open("w", encoding="utf-8") as attempts,
    ):
        for tick in play(sim, faces, spec.end):
            for target in tick.targets:
                gather.add(tick.t, target)
            pending += len(tick.targets)
            answers.writelines(sampler.lines(tick.seen.finishes))
            attempts.writelines(line(attempt(a, tenants=True)) for a in tick.seen.attempts)
            if pending >= FLUSH:
                store.append(gather.take())
                pending = 0
    store.append(gather.take())
    rules, roles = ClassRules.from_config(config.classes), Roles.from_config(config.roles)
    import_outputs(store, folder / "requests.jsonl", rules, roles, config=config)
    import_requests(store, folder / "gateway.jsonl", rules, roles, config=config)
    return {**sim.truth(), "replicas": sum(p.replicas for p in spec.pools)}


@cache
def _simulator() -> bytes:
    code = blake2b(digest_size=8)
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        code.update(path.read_bytes())
    return code.digest()


def _place(spec: FleetSpec, hours: float, most: int | None) -> Path:
    mark = blake2b(_simulator() + repr(spec).encode(), digest_size=6).hexdigest()
    return home() / f"{spec.name}-{spec.seed}-{hours:g}h-{most or 'all'}-{mark}"


def kept(name: str, seed: int, *, hours: float = HOURS, most: int | None = MOST) -> bool:
    """Whether :func:`history` would find it on disk."""
    spec = scenarios.build(name, seed, hours=hours, most=most)
    return (_place(spec, hours, most) / "truth.json").exists()


def history(name: str, seed: int, *, hours: float = HOURS, most: int | None = MOST) -> History:
    """The history of a scenario: the kept one, or made now (about 15 s for 75 minutes of 8 replicas)."""
    spec = scenarios.build(name, seed, hours=hours, most=most)
    folder = _place(spec, hours, most)
    known = folder / "truth.json"
    if known.exists() and kept_schema.fitting(folder) is None:
        kept_schema.drop(folder)
    if not known.exists():
        home().mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=home(), prefix="making-"))
        try:
            config = configuration(making)
            with Store.open(config.database) as store:
                truth = fill(spec, making, config, store)
            (making / "gustfront.yaml").unlink()
            (making / "truth.json").write_text(json.dumps(truth), "utf-8")
            # A rename is all or nothing. Another process may have made the same one meanwhile: then this one is dropped.
            with contextlib.suppress(OSError):
                making.rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return History(name, seed, folder, json.loads(known.read_text("utf-8")))


def _made(name: str, seed: int, hours: float, most: int | None) -> float:
    began = time.perf_counter()
    history(name, seed, hours=hours, most=most)
    return time.perf_counter() - began


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--hours", type=float, default=HOURS)
    parser.add_argument("--most", type=int, default=MOST, help="replicas; 0: all of the scenario's fleet")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        work = {
            (n, s): pool.submit(_made, n, s, args.hours, args.most or None)
            for s in args.seeds
            for n in args.scenarios or list(scenarios.scenarios())
        }
        for (name, seed), future in work.items():
            print(f"{name} {seed}: {future.result():.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
