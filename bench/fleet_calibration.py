"""The simulated fleet against measurements: ``python -m bench.fleet_calibration [--quick]``.

Each line is one figure: what the model gives, what was measured, their ratio; at the end the largest errors.
Measurements are read from the traces folder ($GUSTFRONT_SHARED, default ../shared); without it the model's side
is printed alone.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from fleet.fleets import demo
from fleet.model import FaultSpec, FleetSpec, LogNormal, PoolSpec, Speeds, TrafficSpec
from fleet.profiles import L20_8B, RTX4090_8B, RTXPRO6000_30B, claude_code, completion
from fleet.simulation import Simulation

TRACES = Path(os.environ.get("GUSTFRONT_SHARED", "../shared")) / "traces"
START = 1_790_064_000.0
# The other model computes prompts one after the other at 20,000 tokens/s and decodes beside them at no cost; small
# chunks and a short step come close to that.
SERIAL = Speeds(step=0.002, sequence=0.0, context=0.0, prefill=5.0e-5, attention=0.0, draft=0.0)
# Prompts cost nothing, answers take 6 s as in the recorded sessions: the cache alone is seen.
NO_QUEUE = Speeds(step=0.025, sequence=0.0, context=0.0, prefill=2.0e-7, attention=0.0, draft=0.0)


@dataclass
class Line:
    what: str
    model: float
    measured: float | None
    unit: str = ""
    floor: float = 0.0  # below it two figures count as equal

    @property
    def error(self) -> float:
        """Natural logarithm of model over measurement."""
        if self.measured is None or math.isnan(self.measured):
            return 0.0
        floor = self.floor or 1e-9
        return math.log(max(self.model, floor) / max(self.measured, floor))

    def text(self) -> str:
        measured = "–" if self.measured is None else f"{self.measured:.3g}"
        ratio = "" if self.measured is None else f"×{math.exp(self.error):.2f}"
        return f"  {self.what:<62} {self.model:>9.3g} {measured:>9} {self.unit:<7} {ratio}"


@dataclass
class Minute:
    """What one engine did in one minute."""

    hit: float
    evicted: float
    done: int
    ttft50: float
    ttft95: float
    busy: float
    prefill: float
    running: float
    waiting: float


def one_engine(kv_tokens: int, speeds: Speeds, **changes: object) -> PoolSpec:
    """A pool of one replica without drafts."""
    spec = PoolSpec("p", replicas=1, kv_tokens=kv_tokens, speeds=speeds, spec_tokens=0, max_running=64)
    return replace(spec, **changes)  # type: ignore[arg-type]


def minutes(spec: FleetSpec, count: int) -> list[Minute]:
    """Run and sum up each minute of the first replica."""
    sim = Simulation(spec)
    out: list[Minute] = []
    before: dict[str, float] | None = None
    for i in range(count + 1):
        sim.run(spec.start + 60.0 * i)
        replica = sim.replicas[0]
        now, observed = replica.counters, [e.observations.drain() for e in replica.engines]
        if before is not None:
            d = {k: now[k] - before[k] for k in now}
            ttft = sorted(f.ttft for o in observed for f in o.first_tokens)
            cut = statistics.quantiles(ttft, n=20) if len(ttft) > 1 else [0.0] * 19
            prefill = d["prefill_computed_tokens"] * spec.pools[0].speeds.prefill / 60.0
            gauges = replica.gauges
            out.append(
                Minute(
                    d["cached_tokens"] / max(1.0, d["query_tokens"]),
                    d["evicted_tokens"] / 1024.0 / 60.0,
                    sum(len(o.finishes) for o in observed),
                    cut[9],
                    cut[18],
                    d["busy_seconds"] / 60.0,
                    prefill,
                    gauges["running"],
                    gauges["waiting"],
                )
            )
        before = now
    return out


def storm(kv: int, users: int, seed: int, length: int, faults: tuple[FaultSpec, ...] = ()) -> list[Minute]:
    """Closed loop: ``users`` busy coding agents on one engine with serial prefill of 20,000 tokens/s."""
    spec = FleetSpec(
        (one_engine(kv, SERIAL, token_budget=512),),
        (claude_code("p", users),),
        faults,
        START,
        seed=seed,
        lead=1200.0,
    )
    return minutes(spec, length)


def lru(lines: list[Line], quick: bool) -> None:
    """Hit rate where nothing queues, against cache / (users x mean context)."""
    measured = {1.0: (0.84, 0.94), 0.5: (0.53, 0.75), 0.25: (0.26, 0.40), 0.125: (0.13, 0.17)}
    users = 16
    mean = context_of(users)
    print(f"LRU cache: {users} users, mean context {mean / 1000:.0f}k (measured 131k)")
    for r, (low, high) in measured.items():
        hits = []
        for seed in range(1 if quick else 3):
            spec = FleetSpec(
                (one_engine(int(r * users * mean), NO_QUEUE),),
                (claude_code("p", users),),
                (),
                START,
                seed=seed,
            )
            hits += [m.hit for m in minutes(spec, 60)]
        lines.append(
            Line(f"hit rate at r = {r:g} ({low:.0%}–{high:.0%})", statistics.mean(hits), (low + high) / 2)
        )
        print(lines[-1].text())


def context_of(users: int) -> float:
    """Mean prompt of the model's busy users."""
    spec = FleetSpec((one_engine(50_000_000, NO_QUEUE),), (claude_code("p", users),), (), START, seed=5)
    sim = Simulation(spec)
    sim.run(START + 3600.0)
    prompts = [a.prompt_tokens for a in sim.drain_attempts()]
    return statistics.mean(prompts)


def closed_loop(lines: list[Line], quick: bool) -> None:
    """The storm table: hit rate, completions, TTFT over users, at two sizes of cache."""
    table: dict[tuple[int, int], dict[str, float]] = {}
    path = TRACES / "derived/closed_loop_des_eviction_storm.csv"
    if path.exists():
        with path.open() as file:
            for row in csv.DictReader(file):
                table[int(row["C"]), int(row["N"])] = {k: float(v) for k, v in row.items()}
    print("Closed-loop eviction storm (measured = another model on the recorded sessions)")
    cells = [(2_000_000, n) for n in (8, 16, 20, 24, 32, 48)]
    if not quick:
        cells += [(1_000_000, n) for n in (8, 12, 16, 24)] + [(4_000_000, n) for n in (24, 32, 48)]
    for kv, n in cells:
        ran = [m for seed in range(1 if quick else 2) for m in storm(kv, n, 40 + seed, 60)]
        seen = table.get((kv, n), {})
        name = f"KV {kv / 1e6:g}M, N {n}: "
        lines += [
            Line(name + "hit rate", statistics.mean(m.hit for m in ran), seen.get("hit")),
            Line(name + "completions/min", statistics.mean(m.done for m in ran), seen.get("rpm")),
            Line(name + "TTFT p50", statistics.median(m.ttft50 for m in ran), seen.get("ttft50"), "s", 0.2),
            Line(
                name + "prefill busy",
                statistics.mean(m.prefill for m in ran),
                seen.get("prefill_util"),
                "",
                0.05,
            ),
        ]
        print("\n".join(line.text() for line in lines[-4:]))


def burst(lines: list[Line], quick: bool) -> None:
    """14 users, 20 more for minutes 30 to 45."""
    fault = FaultSpec("knobs", START + 1800.0, 900.0, "p", None, {"rate": 34 / 14})
    runs = [storm(2_000_000, 14, 70 + s, 75, (fault,)) for s in range(1 if quick else 3)]
    seen: list[dict[str, float]] = []
    path = TRACES / "derived/eviction_storm_burst_timeline_per_min.csv"
    if path.exists():
        with path.open() as file:
            rows = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(file)]
        seen = [r for r in rows if r["base_users"] == 14 and r["burst_users"] == 20]
    print("Burst of users, minutes 30 to 45 (KV 2M)")
    for name, a, b in (("before", 5, 30), ("during", 33, 45), ("10–25 min after", 55, 70)):
        ran = [m for run in runs for m in run[a:b]]
        was = [r for r in seen if a <= r["minute"] < b]

        def mean(key: str, was: list[dict[str, float]] = was) -> float | None:
            return statistics.mean(r[key] for r in was) if was else None

        lines += [
            Line(f"{name}: hit rate", statistics.mean(m.hit for m in ran), mean("prefix_hit_rate")),
            Line(f"{name}: completions/min", statistics.mean(m.done for m in ran), mean("requests_done")),
            Line(
                f"{name}: TTFT p50",
                statistics.median(m.ttft50 for m in ran),
                statistics.median(r["ttft_p50"] for r in was) if was else None,
                "s",
                0.2,
            ),
        ]
        print("\n".join(line.text() for line in lines[-3:]))


def ratio(rows: list[dict[str, float]], at: int, name: str) -> float:
    """A series 14 s after ``at``, as a share of what it was."""
    return rows[at + 14][name] / max(1.0, rows[at][name])


def saturation(lines: list[Line], name: str, pool: PoolSpec) -> None:
    """300 requests at 10/s on a small card: what the 1 Hz series and the request records show."""
    series = TRACES / f"measured/vllm_timeseries_1hz_{name}.parquet"
    requests = TRACES / f"measured/vllm_requests_{name}.parquet"
    traffic = TrafficSpec(
        "run", "p", rate=10.0, shared_tokens=0, first=LogNormal(731, 0.56, 256, 4_600),
        output=LogNormal(640, 0.17, 512, 1_230), turns=1.0, timeout=1e6, retries=0, abort_share=0.0,
        tenants={"all": 1.0}, max_tokens=4_096,
    )  # fmt: skip
    stop = FaultSpec("knobs", START + 30.0, None, "p", None, {"rate": 0.0})
    sim = Simulation(FleetSpec((pool,), (traffic,), (stop,), START, seed=7, lead=0.0))
    rows: list[dict[str, float]] = []
    finishes = []
    for second in range(1, 400):
        sim.run(START + second)
        gauges = sim.replicas[0].gauges
        rows.append({"running": gauges["running"], "waiting": gauges["waiting"], "kv": gauges["kv_usage"]})
        finishes += [f for e in sim.replicas[0].engines for f in e.observations.drain().finishes]
        if second > 40 and not gauges["running"] and not gauges["waiting"]:
            break
    took = len(rows)
    tokens = sum(f.output_tokens for f in finishes)
    full = next((i for i, r in enumerate(rows) if r["kv"] > 0.95), None)
    m: dict[str, float] = {}
    if series.exists() and requests.exists():
        s, q = pd.read_parquet(series), pd.read_parquet(requests)
        waiting = s[s.waiting > 5]
        top = int((s.kv_cache_pct > 95).idxmax()) if (s.kv_cache_pct > 95).any() else None
        m = {
            "took": float(len(s)),
            "gen": float(s.gen_throughput.mean()),
            "wait": float(s.waiting.max()),
            "most": float(s.running.max()),
            "late": float(waiting.running.median()),
            "ttft": float((q.first_token_ts - q.arrival_time).median()),
            "prefill": float((q.first_token_ts - q.scheduled_ts).median()),
            "tpot": float(((q.last_token_ts - q.first_token_ts) / (q.output_toks - 1)).median()),
        }
        if top is not None:
            m["full"] = float(top)
            m["fell"] = float(s.running[top + 14] / s.running[top])
            m["queue"] = float(s.waiting[top + 14])
    busy = [r["running"] for r in rows if r["waiting"] > 5]
    tpot = statistics.median(f.decode / max(1, f.output_tokens - 1) for f in finishes)
    print(f"Saturation: {name}, {len(finishes)} requests")
    lines += [
        Line("seconds until all is done", took, m.get("took"), "s"),
        Line("generated tokens/s", tokens / took, m.get("gen")),
        Line("most waiting", max(r["waiting"] for r in rows), m.get("wait")),
        Line("most running", max(r["running"] for r in rows), m.get("most")),
        Line("running while some wait (median)", statistics.median(busy) if busy else 0.0, m.get("late")),
        Line("TTFT p50", statistics.median(f.ttft for f in finishes), m.get("ttft"), "s"),
        Line("prefill p50", statistics.median(f.prefill for f in finishes), m.get("prefill"), "s"),
        Line("time per output token p50", tpot, m.get("tpot"), "s"),
    ]
    shown = 8
    if full is not None and ("full" in m or not m):
        lines.append(Line("seconds until KV is 95 % full", full + 1, m["full"] + 1 if m else None, "s"))
        lines += [
            Line("14 s later: running, share of then", ratio(rows, full, "running"), m.get("fell")),
            Line("14 s later: waiting", rows[full + 14]["waiting"], m.get("queue")),
        ]
        shown = 11
    print("\n".join(line.text() for line in lines[-shown:]))


def sweep(lines: list[Line], quick: bool) -> None:
    """TTFT and decode time over the request rate: 8 replicas, prompts of 21,073 tokens, 100 tokens out."""
    path = TRACES / "measured/aibrix_multiround_qa_qps_sweep_v0.2.1.parquet"
    data = pd.read_parquet(path) if path.exists() else None
    print("AIBrix sweep, 8 replicas, no shared prefix (setup naive)")
    for qps in (0.5, 1.7, 2.5, 2.9, 3.3, 3.7, 4.1):
        pool = one_engine(170_000, L20_8B, replicas=8, max_running=256, token_budget=2_048, router="pinned")
        traffic = TrafficSpec(
            "qa", "p", rate=qps, shared_tokens=0, first=LogNormal(21_073), output=LogNormal(100), turns=1.0,
            timeout=1e6, retries=0, abort_share=0.0, tenants={"all": 1.0},
        )  # fmt: skip
        ttft: list[float] = []
        decode: list[float] = []
        for seed in range(2 if quick else 6):
            sim = Simulation(FleetSpec((pool,), (traffic,), (), START, seed=seed, lead=0.0))
            sim.run(START + 115.0)
            for r in sim.replicas:
                for f in r.engines[0].observations.finishes:
                    ttft.append(f.ttft)
                    decode.append(f.decode)
        seen = (
            data[(data.setup == "naive") & (data.target_qps == qps) & (data.ttft > 0)]
            if data is not None
            else None
        )
        lines += [
            Line(
                f"{qps} requests/s: TTFT p50",
                statistics.median(ttft),
                float(seen.ttft.median()) if seen is not None else None,
                "s",
            ),
            Line(
                f"{qps} requests/s: decode of 100 tokens p50",
                statistics.median(decode),
                float(seen.generation_time.median()) if seen is not None else None,
                "s",
            ),
        ]
        print("\n".join(line.text() for line in lines[-2:]))


def bursts(lines: list[Line]) -> None:
    """How bursty the model's completions are, against Azure's code trace."""
    path = TRACES / "requests/azure2023_code_first60pct.parquet"

    def figures(arrivals: list[float], length: float) -> list[float]:
        counts = [0] * int(length // 60)
        for t in arrivals:
            if t < 60 * len(counts):
                counts[int(t // 60)] += 1
        gaps = [b - a for a, b in itertools.pairwise(sorted(arrivals))]
        mean = statistics.mean(counts)
        return [
            statistics.pstdev(gaps) / statistics.mean(gaps),
            statistics.pvariance(counts) / mean,
            max(counts) / mean,
            sum(c < 0.1 * mean for c in counts) / len(counts),
        ]

    pool = one_engine(2_000_000, NO_QUEUE, max_running=1_000)
    sim = Simulation(FleetSpec((pool,), (completion("p", 2.6),), (), START, seed=3, lead=0.0))
    sim.run(START + 6 * 3600.0)
    model = figures([a.ts - a.duration - START for a in sim.drain_attempts()], 6 * 3600.0)
    seen: list[float] | None = None
    if path.exists():
        arrivals = pd.read_parquet(path).arrival_s.tolist()
        seen = figures(arrivals, arrivals[-1])
    print("Completions: bursts (Azure code)")
    names = ("CV of the gaps", "variance/mean of counts a minute", "peak/mean minute", "minutes nearly empty")
    for i, name in enumerate(names):
        lines.append(Line(name, model[i], None if seen is None else seen[i]))
        print(lines[-1].text())


def marginals(lines: list[Line]) -> None:
    """Lengths of prompts and answers against the traces that they were fitted to."""
    print("Lengths")
    pool = one_engine(60_000_000, NO_QUEUE, max_running=2_000)
    cases = (
        (claude_code("p", 24), "claudecode_sessions_lt410", "agents (Claude Code)"),
        (completion("p", 2.6), "azure2023_code_first60pct", "completions (Azure code)"),
    )
    for traffic, name, label in cases:
        sim = Simulation(FleetSpec((pool,), (traffic,), (), START, seed=9))
        sim.run(START + 2 * 3600.0)
        done = [a for a in sim.drain_attempts() if a.status == 200]
        path = TRACES / f"requests/{name}.parquet"
        data = pd.read_parquet(path, columns=["prompt_tokens", "output_tokens"]) if path.exists() else None
        for what in ("prompt_tokens", "output_tokens"):
            values = sorted(getattr(a, what) for a in done)
            for q in (0.5, 0.9):
                measured = None if data is None else float(data[what].quantile(q))
                lines.append(
                    Line(f"{label}: {what} p{q * 100:.0f}", values[int(q * len(values))], measured, "tokens")
                )
                print(lines[-1].text())


def speed() -> None:
    """How long an hour of 24 replicas takes on this core."""
    sim = Simulation(demo(1))
    before = time.process_time()
    requests = 0
    for i in range(241):
        sim.run(sim.spec.start + 15.0 * i)
        requests += len(sim.drain_attempts())
        for replica in sim.replicas:
            for engine in replica.engines:
                engine.observations.drain()
    seconds = time.process_time() - before
    print(
        f"Speed: 1 h of {len(sim.replicas)} replicas, {requests} requests: {seconds:.1f} s of one core (goal < 60)"
    )


def main() -> None:
    """Run everything and name the largest errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, fewer cells")
    quick = parser.parse_args().quick
    lines: list[Line] = []
    print(f"  {'':<62} {'model':>9} {'measured':>9}")
    lru(lines, quick)
    closed_loop(lines, quick)
    burst(lines, quick)
    saturation(
        lines, "RTX4090_Llama-3.1-8B", one_engine(46_500, RTX4090_8B, max_running=256, token_budget=2_048)
    )
    saturation(
        lines,
        "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507",
        one_engine(700_000, RTXPRO6000_30B, max_running=256, token_budget=2_048),
    )
    sweep(lines, quick)
    bursts(lines)
    marginals(lines)
    speed()
    print("Largest errors")
    for line in sorted(lines, key=lambda x: -abs(x.error))[:8]:
        print(line.text())


if __name__ == "__main__":
    main()
