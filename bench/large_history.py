"""A database as a fleet of 200 replicas leaves it after 14 days, for measuring the screens.

    python -m bench.large_history FOLDER [--replicas 200] [--days 14] [--frame-hours 3]

Writes ``FOLDER/gustfront.yaml`` and ``FOLDER/fleet.db``: pools of twenty replicas (two engines' bucket layouts), six classes
with an objective each, a gateway log, sampled outputs, releases, and incidents of which one is open. The last hours are
scraped every 15 s and written through the store as collectors do; the roll-ups of the days before are written into their table
as the store would have left them (one row per series and minute, five minutes or hour), because sixteen million scrapes take
hours to write and no screen reads them. Fixed seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator

from core.frames import IntArray, Layout, Reading, Target, column
from core.incidents import Evidence, Incident, RuledOut
from core.records import Event, OutputRecord, RequestRecord
from core.requests import RequestCell, RequestKey, fine_edges, fold
from sql.accumulate import HOUR, MINUTE, REPLICA
from sql.bulk import bulk
from sql.schema import rollups
from sql.series import SeriesCache, items
from sql.store import Store

END = 1_790_000_000.0 // 86400 * 86400 + 86400 + 14 * 3600
EVERY = 15.0
CLASSES = ("coding-agent", "chat", "batch", "search", "summarise", "tools")
ENGINES = (
    ("vllm", (0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)),
    ("sglang", (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 100.0)),
)  # fmt: skip
ITL = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
PER_POOL = 20
COLUMNS = ("series_id", "resolution", "ts", "n", "total", "max_", "counts")
CONFIG = """database: sqlite:///{file}
classes:
{classes}
slos:
{slos}
"""


def layout(class_: str, edges: tuple[float, ...]) -> Layout:
    """What an engine of the fleet exports."""
    return Layout(
        (
            *(column(s, class_=class_) for s in ("requests_running", "requests_waiting", "kv_cache_usage_ratio")),
            column("kv_cache_capacity"),
            column("gpu_sm_clock_hz", gpu="0"),
            *(
                column(s, "counter", class_=class_)
                for s in (
                    "prefix_cache_queries_tokens_total",
                    "prefix_cache_hit_tokens_total",
                    "preemptions_total",
                    "prompt_tokens_total",
                    "generation_tokens_total",
                )
            ),
            column("request_success_total", "counter", class_=class_, finish_reason="stop"),
            column("request_success_total", "counter", class_=class_, finish_reason="length"),
            column("evictions", "counter", class_=class_),
            *(
                column(s, "histogram", edges, class_=class_)
                for s in ("ttft_seconds", "request_latency_seconds", "queue_time_seconds")
            ),
            column("inter_token_latency_seconds", "histogram", ITL, class_=class_),
        )
    )  # fmt: skip


@dataclass
class Replica:
    """One engine with its cumulative values."""

    target: Target
    layout: Layout
    counts: IntArray
    sums: np.ndarray


def fleet(count: int) -> list[Replica]:
    """The replicas."""
    out = []
    for i in range(count):
        pool = i // PER_POOL
        class_ = CLASSES[pool % len(CLASSES)]
        engine, edges = ENGINES[pool % 2]
        lay = layout(class_, edges)
        target = Target(
            f"{class_}-{pool}-{i % PER_POOL}:8000",
            pool=f"{class_}-{pool}",
            replica=f"{class_}-{pool}-{i % PER_POOL}",
            source="bench",
            components=(engine,),
            version="0.11.0",
            model="glm-5",
            release="2026.9",
        )
        _, n, s = lay.size
        out.append(Replica(target, lay, np.zeros(n, np.int64), np.zeros(s)))
    return out


def step(
    random: Generator, r: Replica, seconds: float, load: float
) -> tuple[np.ndarray, IntArray, np.ndarray]:
    """(gauges, increments, sums of the increments) of ``seconds`` at a load of 0 to 1."""
    g, n, s = r.layout.size
    gauges, counts, sums = np.zeros(g), np.zeros(n, np.int64), np.zeros(s)
    done = int(random.poisson(max(seconds * 1.2 * load, 0.01)))
    running = 4 + 12 * load + random.normal(0, 1)
    base = {"coding-agent": 2.0, "chat": 0.25, "batch": 1.5}.get(r.target.pool.rsplit("-", 1)[0], 0.5)
    for i, c in enumerate(r.layout.columns):
        gs, ns, ss = r.layout.slots[i]
        if c.signal == "requests_running":
            gauges[gs] = max(0.0, round(running))
        elif c.signal == "kv_cache_usage_ratio":
            gauges[gs] = np.clip(0.2 + 0.5 * load + random.normal(0, 0.03), 0, 1)
        elif c.signal == "kv_cache_capacity":
            gauges[gs] = 900_000
        elif c.signal == "gpu_sm_clock_hz":
            gauges[gs] = 1.98e9
        elif c.signal == "prefix_cache_queries_tokens_total":
            counts[ns] = done * 4000
        elif c.signal == "prefix_cache_hit_tokens_total":
            counts[ns] = int(done * 4000 * (0.8 + 0.05 * random.normal()))
        elif c.signal == "prompt_tokens_total":
            counts[ns] = done * 4000
        elif c.signal == "generation_tokens_total":
            counts[ns] = done * 250
        elif c.signal == "request_success_total":
            counts[ns] = done if c.label("finish_reason") == "stop" else int(done > 30)
        elif c.signal == "evictions":
            counts[ns] = int(done * 20 * load)
        elif c.kind == "histogram" and done:
            scale = {"inter_token_latency_seconds": 0.02, "queue_time_seconds": 0.02}.get(c.signal, base)
            many = min(done * (60 if c.signal == "inter_token_latency_seconds" else 1), 4000)
            values = random.lognormal(np.log(scale), 0.45, many)
            counts[ns] = np.bincount(np.searchsorted(c.edges, values), minlength=len(c.edges) + 1)
            sums[ss] = values.sum()
    return gauges, counts, sums


def load_at(t: float) -> float:
    """Day and night."""
    return float(0.55 + 0.35 * np.sin((t % 86400) / 86400 * 2 * np.pi - 2.0))


def write_frames(store: Store, replicas: list[Replica], begin: float, end: float) -> None:
    """Scrapes every 15 s from ``begin``, ten minutes a transaction."""
    random = np.random.default_rng(3)
    batch: list[Reading] = []
    ticks = int((end - begin) / EVERY)
    for tick in range(ticks + 1):
        t = begin + tick * EVERY
        for r in replicas:
            gauges, counts, sums = step(random, r, EVERY, load_at(t))
            r.counts = r.counts + counts
            r.sums = r.sums + sums
            batch.append(Reading(r.target, t, r.layout, gauges, r.counts, r.sums, start=end - 15 * 86400))
        if tick % 40 == 39 or tick == ticks:
            store.append(batch)
            batch = []
            print(f"\rscrapes {tick}/{ticks}", end="", file=sys.stderr)
    print(file=sys.stderr)


def shapes(
    random: Generator, r: Replica, seconds: float, units: int, kinds: int = 288
) -> list[list[tuple[int, float, float | None, str | None]]]:
    """For each rolled-up column ``kinds`` rows (n, total, max, counts) of one day."""
    out: list[list[tuple[int, float, float | None, str | None]]] = [[] for _ in items(r.layout)]
    for k in range(kinds):
        gauges, counts, sums = step(random, r, seconds * units, load_at(k * 86400 / kinds))
        for i, item in enumerate(items(r.layout)):
            g, n, s = item.slots
            kind = item.column.kind
            if kind == "gauge":
                values = int(seconds * units / EVERY)
                out[i].append((values, float(gauges[g][0] * values), float(gauges[g][0]), None))
            elif kind == "counter":
                out[i].append((int(counts[n][0]), float(counts[n][0]), None, None))
            else:
                out[i].append((int(counts[n].sum()), float(sums[s][0]), None, json.dumps(counts[n].tolist())))
    return out  # fmt: skip


def rows_of(
    series: int, resolution: int, begin: int, end: int, day: list[tuple[int, float, float | None, str | None]]
) -> Iterator[tuple[object, ...]]:
    """The rows of one series from a typical day."""
    for ts in range(begin, end, resolution):
        yield (series, resolution, ts, *day[ts % 86400 * len(day) // 86400])  # fmt: skip


def write_rollups(store: Store, replicas: list[Replica], begin: int, end: int) -> None:
    """Roll-ups per pool (minutes and hours) and per replica (five minutes) of [begin, end)."""
    random = np.random.default_rng(4)
    cache = SeriesCache()
    pools: dict[str, list[Replica]] = {}
    for r in replicas:
        pools.setdefault(r.target.pool, []).append(r)
    for n, (pool, members) in enumerate(pools.items()):
        one = members[0]
        ids = cache.ids(one.layout, "", pool, one.target.model, "")
        units = [cache.ids(r.layout, "", pool, r.target.model, r.target.replica) for r in members]
        days = {res: shapes(random, one, res, len(members)) for res in (MINUTE, HOUR)}
        with store.database.write(lock=True) as c:
            written = cache.store(c)
            for i, item in enumerate(items(one.layout)):
                if item.pooled:
                    for res, day in days.items():
                        first = begin // res * res
                        rows = rows_of(int(ids[i]), res, first, end, day[i])
                        bulk(c, rollups, COLUMNS, list(rows), update=None)
            own = shapes(random, one, REPLICA, 1)
            for r, ids_r in zip(members, units, strict=True):
                for i, item in enumerate(items(r.layout)):
                    if item.local:
                        bulk(c, rollups, COLUMNS, list(rows_of(int(ids_r[i]), REPLICA, begin, end, own[i])))
        cache.committed(written)
        print(f"\rroll-ups of pool {n + 1}/{len(pools)}", end="", file=sys.stderr)
    print(file=sys.stderr)


def write_log(store: Store, begin: int, end: int) -> None:
    """The gateway's log, one typical minute of each hour of the day shifted over the minutes."""
    random = np.random.default_rng(5)
    edges = fine_edges([1.0, 2.0, 5.0, 8.0])
    typical: list[dict[RequestKey, RequestCell]] = []
    for hour in range(24):
        records = []
        for c in CLASSES:
            base = {"coding-agent": 2.0, "chat": 0.25, "batch": 1.5}.get(c, 0.5)
            for k in range(int(60 * load_at(hour * 3600))):
                ttft = float(random.lognormal(np.log(base), 0.45))
                gone = k % 97 == 0
                records.append(
                    RequestRecord(
                        ts=30.0,
                        status=499 if gone else 200,
                        workload_class=c,
                        duration_s=ttft + 6,
                        ttft_s=None if gone else ttft,
                        prompt_tokens=2000 if k % 3 else 40_000,
                        output_tokens=None if gone else 250,
                        tenant="acme" if k % 4 else "globex",
                        pool=f"{c}-{CLASSES.index(c)}",
                    )
                )
        typical.append(fold(records, edges))
    for day in range(begin, end, 86400):
        cells: dict[RequestKey, RequestCell] = {}
        for minute in range(day, min(day + 86400, end), 60):
            for key, cell in typical[minute % 86400 // 3600].items():
                cells[replace(key, minute=minute)] = cell
        store.add_requests(cells)
        print(f"\rlog {(day - begin) // 86400 + 1} days", end="", file=sys.stderr)
    print(file=sys.stderr)


def write_facts(store: Store, replicas: list[Replica], begin: float, end: float) -> None:
    """Outputs, releases and incidents."""
    random = np.random.default_rng(6)
    outputs = []
    span = end - begin
    for i in range(100_000):
        r = replicas[int(random.integers(len(replicas)))]
        t = begin + span * i / 100_000
        outputs.append(
            OutputRecord(
                id=f"o{i}",
                ts=t + 8,
                admitted=t,
                workload_class=r.target.pool.rsplit("-", 1)[0],
                pool=r.target.pool,
                replica=r.target.replica,
                model="glm-5",
                session=f"s{i // 6}",
                turn=i % 6,
                prompt_tokens=int(random.lognormal(8.2, 0.7)),
                output_tokens=250,
                cached_tokens=2000,
                verdict="hard" if random.random() < 4e-4 else "clean",
            )
        )
    store.add_outputs(outputs)
    pools = sorted({r.target.pool for r in replicas})
    store.add_events(
        [
            Event(begin + span * k / 120, "deploy", f"release {k}", pool=pools[k % len(pools)])
            for k in range(120)
        ]
    )
    store.save_incidents(
        [incident(k, begin + span * (k + 0.5) / 40, pools[k % len(pools)]) for k in range(39)]
    )
    store.save_incident(incident(39, end - 1500, pools[0], is_open=True))


def incident(k: int, t: float, pool: str, *, is_open: bool = False) -> Incident:
    """One incident of a pool."""
    kind = ("kv_eviction_storm", "slow_replica", "capacity_shortfall", "traffic_shift")[
        0 if is_open else k % 4
    ]
    return Incident(
        id=f"bench-{k}",
        kind=kind,
        severity="page" if is_open or k % 5 == 0 else "ticket",
        state="open" if is_open else "resolved",
        title=f"{kind.replace('_', ' ')} on {pool}",
        started_at=t,
        announced_at=t + 60,
        detected_at=t + 120,
        diagnosed_at=t + 120,
        ended_at=None if is_open else t + 1800,
        classes=(pool.rsplit("-", 1)[0],),
        pools=(pool,),
        replicas=(f"{pool}-0", f"{pool}-1", f"{pool}-2"),
        cause="Sessions outgrew the cache",
        confidence=0.9,
        runner_up="capacity_shortfall",
        evidence=(Evidence("prefix_cache_hit_tokens_total", pool, 0.9, 0.2, 0.9, t + 60, "ratio"),),
        ruled_out=(RuledOut("capacity_shortfall", "work per request constant?", "×6"),),
        updated_at=t + 180,
    )


def write(folder: Path, replicas: int, days: float, frame_hours: float) -> Path:
    """Write everything; returns the configuration."""
    file, config = folder / "fleet.db", folder / "gustfront.yaml"
    pools = [f"{CLASSES[p % len(CLASSES)]}-{p}" for p in range(-(-replicas // PER_POOL))]
    by_class = {c: [f'pool="{p}"' for p in pools if p.rsplit("-", 1)[0] == c] for c in CLASSES}
    classes = [f"  - {{name: {c}, match: {json.dumps(m)}}}" for c, m in by_class.items() if m]
    limits = {"coding-agent": 8, "chat": 1, "batch": 5}
    slos = [
        f"  - {{name: {c}-ttft, class: {c}, signal: ttft_seconds, threshold: {limits.get(c, 2)}s,"
        " objective_percent: 99, window: 28d}"
        for c, m in by_class.items()
        if m
    ]
    config.write_text(CONFIG.format(file=file, classes="\n".join(classes), slos="\n".join(slos)))
    fleet_ = fleet(replicas)
    begin = int(END - days * 86400)
    cut = int(END - frame_hours * 3600)
    with Store.open(f"sqlite:///{file}") as store:
        write_rollups(store, fleet_, begin, cut)
        write_frames(store, fleet_, float(cut), END)
        write_log(store, begin, int(END))
        write_facts(store, fleet_, float(begin), END)
    return config


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--days", type=float, default=14.0)
    parser.add_argument("--frame-hours", type=float, default=3.0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    config = write(options.folder.absolute(), options.replicas, options.days, options.frame_hours)
    size = (options.folder / "fleet.db").stat().st_size
    print(f"{config}: {size / 1e9:.2f} GB in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
