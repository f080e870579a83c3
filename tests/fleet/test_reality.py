"""What real fleets do to whoever counts: two Prometheus servers over one fleet, ranks inside a replica, addresses used again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.histories import configuration, fill
from collectors.backfill import backfill
from collectors.dictionary import load_dictionary
from collectors.exposition import parse
from core.classes import ClassRules
from core.config_models import PrometheusSource
from core.frames import Frame, Target
from core.roles import Roles
from fleet.faces.targets import FleetFaces
from fleet.history import play
from fleet.model import FaultSpec, FleetSpec, PoolSpec, TrafficSpec
from fleet.simulation import Simulation
from sql.store import Store
from tests.collectors.prometheus_truth import frame_sums
from tests.conftest import PrometheusStarter
from tests.servers import build_tsdb

START, MINUTES = 1_790_000_100.0, 12.0
END = START + 60 * MINUTES


def spec(*pools: PoolSpec, **changes: Any) -> FleetSpec:
    traffic = tuple(TrafficSpec("chat", p.name, rate=0.6) for p in pools)
    return FleetSpec(pools, traffic, start=START, end=END, seed=4, **changes)


@dataclass(frozen=True)
class Kept:
    """What was stored of a simulated fleet, and every attempt that it answered."""

    frames: list[Frame]
    targets: dict[int, Target]
    answered: list[dict[str, Any]]

    def finished(self, replica: str) -> int:
        """Requests counted as finished on a replica."""
        mine = [f for f in self.frames if self.targets[f.target_id].replica == replica]
        return sum(sum(v) for v in frame_sums(mine, "request_success_total").values())

    def really(self, replica: str) -> int:
        """Requests that it answered between two scrapes of one process. What a process did after its last scrape is
        lost to everybody."""
        spans = [
            (f.t1 - 15.0 if f.reset else f.t0, f.t1)
            for f in self.frames
            if self.targets[f.target_id].replica == replica
            and "-gpu" not in self.targets[f.target_id].address
        ]
        times = [r["ts"] for r in self.answered if r["upstream"].startswith(f"{replica}:")]
        return sum(any(a < t <= b for a, b in spans) for t in times)


def kept(fleet: FleetSpec, folder: Path) -> Kept:
    config = configuration(folder)
    with Store.open(config.database) as store:
        fill(fleet, folder, config, store)
        frames = list(store.frames(START, END + 60))
        targets = {row.id: row.target for row in store.targets()}
    rows = [json.loads(line) for line in (folder / "gateway.jsonl").read_text().splitlines()]
    return Kept(frames, targets, [r for r in rows if r["status"] == 200])


# --------------------------------------------------------------------------------------- addresses used again


@pytest.mark.parametrize("engine", ["vllm", "tensorrt_llm", "sglang"])
def test_a_new_pod_at_the_address_of_one_that_left_neither_loses_nor_doubles_a_request(
    engine: Any, tmp_path: Path
) -> None:
    """vLLM tells when its process began; TensorRT-LLM and SGLang do not, their counters just begin again."""
    version = {"vllm": "0.32.0", "tensorrt_llm": "1.2.0", "sglang": "0.5.18"}[engine]
    leaves = FaultSpec("scale", START + 150, None, "a", None, {"add": -1})
    comes = FaultSpec("scale", START + 400, None, "a", None, {"add": 1})
    got = kept(spec(PoolSpec("a", engine, 2, version=version), faults=(leaves, comes)), tmp_path)
    assert {t.replica for t in got.targets.values()} == {"a-0", "a-1"}
    silent = [f for f in got.frames if got.targets[f.target_id].replica == "a-1" and f.reset]
    assert silent, "the second pod's first scrape begins anew"
    for replica in ("a-0", "a-1"):
        assert got.finished(replica) == got.really(replica) > 50


# ----------------------------------------------------------------------------------------- ranks in a replica


def test_ranks_of_one_replica_are_added_up_and_are_not_replicas_of_their_own(tmp_path: Path) -> None:
    got = kept(spec(PoolSpec("moe", replicas=1, ranks=4, version="0.32.0")), tmp_path)
    assert {t.replica for t in got.targets.values()} == {"moe-0"}
    assert got.finished("moe-0") == got.really("moe-0") > 100


# ------------------------------------------------------------------------------------- two Prometheus servers

FAMILIES = (
    "vllm:time_to_first_token_seconds_count",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:time_to_first_token_seconds_sum",
    "vllm:request_success_total",
    "process_start_time_seconds",
)


def lines(fleet: FleetSpec) -> dict[str, list[str]]:
    """What two servers have of one fleet: the same values, the second's scrapes seven seconds later."""
    sim = Simulation(fleet)
    out: dict[str, list[str]] = {"a": [], "b": []}
    for tick in play(sim, FleetFaces(sim, edge=False), END):
        for t in tick.targets:
            if t.name.endswith("-gpu"):
                continue
            body = t.body()
            series = parse(body) if body is not None else None
            rows: list[tuple[str, dict[str, str], float]] = [("up", {}, float(series is not None))]
            if series is not None:
                rows += [
                    (name, dict(labels), float(v))
                    for (name, labels), v in zip(series.series, series.values, strict=True)
                    if name in FAMILIES
                ]
            for server, late in (("a", 0.0), ("b", 7.0)):
                for name, labels, value in rows:
                    home = {**t.labels, **labels, "prometheus_replica": server}
                    text = ",".join(f'{k}="{v}"' for k, v in home.items())
                    out[server].append(f"{name}{{{text}}} {value} {tick.t + late}")
    return out


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """TSDBs: of one server, of the other, and of both as Thanos or Mimir would show them without deduplication."""
    folder = tmp_path_factory.mktemp("ha")
    restart = FaultSpec("restart", START + 330, None, "a", (0,), {"down": 40.0})
    rows = lines(spec(PoolSpec("a", replicas=2, version="0.32.0"), faults=(restart,)))
    try:
        return {
            name: build_tsdb(some, folder / name)
            for name, some in {**rows, "both": rows["a"] + rows["b"]}.items()
        }
    except FileNotFoundError as problem:
        pytest.skip(str(problem))


def counts(store: Store) -> dict[str, int]:
    """First tokens by replica, each process once, in the frames and in the roll-ups."""
    targets = {row.id: row.target for row in store.targets()}
    out: dict[str, int] = {}
    for replica in {t.replica for t in targets.values()}:
        mine = [f for f in store.frames(START, END + 60) if targets[f.target_id].replica == replica]
        out[replica] = sum(sum(v) for v in frame_sums(mine, "ttft_seconds").values())
    rolled = store.rollup_matrix("ttft_seconds", START - 60, END + 60).values()
    out["rolled up"] = sum(int(c.sum()) for _, c, _ in rolled)
    return out


def read(store: Store, url: str, name: str) -> None:
    source = PrometheusSource(url=url, selector='{job="vllm"}', name=name)
    done = backfill(store, source, load_dictionary(), ClassRules(), Roles(), START, END + 30)
    assert done.complete


@pytest.mark.prometheus
@pytest.mark.parametrize("servers", [("a", "b"), ("b", "a"), ("both",)])
def test_a_pair_of_servers_over_one_fleet_doubles_no_count(
    servers: tuple[str, ...], copies: dict[str, Path], prometheus: PrometheusStarter, tmp_path: Path
) -> None:
    """As two sources, in either order, or behind one address with both copies of each series; one process restarts."""
    found: dict[tuple[str, ...], dict[str, int]] = {}
    for way in (("a",), servers):
        with Store.open(f"sqlite:///{tmp_path}/{'-'.join(way)}.db") as store:
            for server in way:
                with prometheus(copies[server]) as url:
                    read(store, url, server)
            found[way] = counts(store)
            assert {row.target.replica for row in store.targets()} == {"a-0", "a-1"}
    once, both = found["a",], found[servers]
    assert once["rolled up"] == once["a-0"] + once["a-1"] > 500
    # The second server saw up to seven seconds more or less at both ends, some requests; twice would be hundreds.
    for name, n in once.items():
        assert abs(both[name] - n) <= 0.02 * n, (name, both, once)
