"""Made-up replicas with answers by status, a ledger, GPUs and a gateway's log: every number of a step is given, nothing is drawn.

:class:`Step` says what one replica does, rates per second; what is None is not exported. ``scraped`` False is a failed scrape,
None is a replica that nobody scrapes. :class:`Gate` says what the gateway's log holds of a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.frames import Column, Frame, Layout, Target, column
from core.records import Event
from core.requests import RequestCount
from detectors.contract import Detector
from detectors.cube import Cube
from detectors.fold import Fold
from detectors.registry import detectors, wanted
from detectors.samples import EMPTY
from tests.detectors.fleet import CONTEXT, START, STEP, TTFT_EDGES, Run

EDGES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)
NEAR = frozenset(
    {
        "telemetry_fault",
        "gpu_fault",
        "wedged",
        "capacity_lost",
        "error_burst",
        "gateway_fault",
        "stuck_requests",
        "config_drift",
        "kv_eviction_storm",
        "slow_replica",
        "retry_storm",
        "capacity_shortfall",
        "tail_latency_spike",
        "warm_up",
    }
)
"""The kinds of this part and those that look like them."""
FIRST_TICK = 24.0
"""Minutes of past before anything is judged."""


@dataclass(frozen=True)
class Step:
    """What one replica does, per second; times in seconds."""

    arrivals: float = 4.0
    done: float = 4.0
    seconds: float = 2.5
    failed: float = 0.0
    refused: float = 0.0
    left: float = 0.0
    running: float = 10.0
    waiting: float = 0.0
    kv: float = 0.3
    capacity: float | None = 500_000.0
    tokens: float = 800.0
    prompt: float = 8000.0
    hit: float = 0.8
    ttft: float = 0.12
    preempted: float = 0.0
    xid: float | None = None
    ecc: int = 0
    gpus: int = 2
    by_status: bool = True
    spec: bool = False
    restart: bool = False
    scraped: bool | None = True


@dataclass(frozen=True)
class Gate:
    """One minute of a pool at the gateway: attempts by status, mean time to first token, share beyond the objective."""

    statuses: Mapping[int, int] = field(default_factory=lambda: {200: 720})
    ttft: float = 0.121
    late: float = 0.0
    tenant: str = "acme"


Say = Callable[[float, str], Step]


def play(
    say: Say,
    minutes: float = 40,
    pools: Mapping[str, Sequence[str]] | None = None,
    gate: Callable[[float, str], Gate | None] | None = None,
    *,
    items: Sequence[Detector] | None = None,
    roles: Mapping[str, str] | None = None,
    versions: Mapping[str, Sequence[tuple[float, str]]] | None = None,
    events: Sequence[Event] = (),
    first: float = FIRST_TICK,
) -> Run:
    """Run the fold over a made-up history; ``versions`` gives, by replica, what it says of itself from which minute on."""
    pools = pools or {"a": ("a-0", "a-1", "a-2")}
    chosen = tuple(items or (d for d in detectors() if d.kind in NEAR))
    cube = build(say, minutes, pools, gate, chosen, roles, versions)
    fold = Fold(CONTEXT, chosen)
    changes = []
    now = START + first * 60
    while now <= START + minutes * 60:
        seen = [e for e in events if e.ts <= now]
        changes += [(now, c) for c in fold.tick(cube, EMPTY, seen, now, now)]
        now += STEP
    assert not fold.errors, fold.errors
    return Run(fold, changes)


def build(
    say: Say,
    minutes: float,
    pools: Mapping[str, Sequence[str]],
    gate: Callable[[float, str], Gate | None] | None,
    items: Sequence[Detector],
    roles: Mapping[str, str] | None = None,
    versions: Mapping[str, Sequence[tuple[float, str]]] | None = None,
) -> Cube:
    """The cube of a made-up history."""
    needs, hists = wanted(tuple(items))
    cube = Cube(needs, hists, start=START)
    cube.attempts.thresholds = {"chat": 1.0}
    targets: dict[int, Target] = {}
    frames: list[Frame] = []
    down: list[tuple[int, float]] = []
    for pool, names in pools.items():
        for name in names:
            tid = len(targets) + 1
            targets[tid] = Target(
                f"{name}:8000",
                pool=pool,
                replica=name,
                components=("vllm",),
                role=(roles or {}).get(pool, ""),
            )
            since = START
            for k in range(1, int(minutes * 60 / STEP) + 1):
                t = START + k * STEP - 2.0
                s = say((t - START) / 60, name)
                if s.scraped:
                    frames.append(_frame(tid, since, t, s))
                    since = t
                elif s.scraped is False:
                    down.append((tid, t))
    frames.sort(key=lambda f: f.t1)
    cube.extend(frames, targets, START + minutes * 60)
    for tid, t in down:
        cube.mark_up(targets[tid], t, False)
    for target in targets.values():
        for minute, version in (versions or {}).get(target.replica, ()):
            cube.note_facts(Target(**{**vars(target), "version": version}), START + minute * 60)
    if gate is not None:
        rows = [
            _row(START // 60 * 60 + m * 60, pool, g, status, n)
            for m in range(int(minutes))
            for pool in pools
            if (g := gate(m, pool)) is not None
            for status, n in g.statuses.items()
        ]
        cube.attempts.add(rows, cube.attempts.first * 60, START // 60 * 60 + int(minutes) * 60)
    return cube


def _row(minute: float, pool: str, g: Gate, status: int, n: int) -> RequestCount:
    late = round(n * g.late)
    got = status == 200
    first = {} if not got else {EDGES.index(0.25): n - late, EDGES.index(10.0): late}
    return RequestCount(
        int(minute),
        "gateway",
        "chat",
        g.tenant,
        pool,
        status,
        n,
        n * 2000,
        n * 200 if got else 0,
        n * g.ttft if got else 0.0,
        n * 2.5,
        EDGES,
        {b: k for b, k in first.items() if k},
    )


def _frame(tid: int, t0: float, t1: float, s: Step) -> Frame:
    def count(rate: float) -> int:
        # What is left of a whole event is carried by time, so that sums come out right.
        return int((t1 - START) * rate) - int((t0 - START) * rate)

    n, done = count(s.arrivals), count(s.done)
    hist = np.zeros(len(TTFT_EDGES) + 1, np.int64)
    hist[int(np.searchsorted(TTFT_EDGES, s.ttft))] = n
    times = np.zeros(len(TTFT_EDGES) + 1, np.int64)
    times[int(np.searchsorted(TTFT_EDGES, s.seconds))] = done
    values: dict[Column, float | int | tuple[np.ndarray, float]] = {
        column("requests_running"): s.running,
        column("requests_waiting"): s.waiting,
        column("kv_cache_usage_ratio"): s.kv,
        column("generation_tokens_total", "counter"): count(s.tokens),
        column("prefix_cache_queries_tokens_total", "counter"): count(s.prompt),
        column("prefix_cache_hit_tokens_total", "counter"): int(count(s.prompt) * s.hit),
        column("preemptions_total", "counter"): count(s.preempted),
        column("request_success_total", "counter", finish_reason="stop"): done,
        column("ttft_seconds", "histogram", TTFT_EDGES, class_="chat"): (hist, n * s.ttft),
        column("inference_time_seconds", "histogram", TTFT_EDGES): (times, done * s.seconds),
    }
    if s.capacity is not None:
        values[column("kv_cache_capacity")] = s.capacity
    if s.spec:
        values[column("spec_draft_tokens_total", "counter")] = done
    if s.by_status:
        for status, n_ in (
            ("2xx", done + count(s.left)),
            ("5xx", count(s.failed)),
            ("429", count(s.refused)),
        ):
            values[column("http_responses_total", "counter", status=status)] = n_
    if s.xid is not None:
        values[column("gpu_xid", gpu="0")] = s.xid
        values[column("gpu_ecc", "counter", gpu="0", error="uncorrectable")] = s.ecc
        for g in range(s.gpus):
            values[column("gpu_sm_clock_hz", gpu=str(g))] = 1.98e9
    layout = _layout(tuple(values))
    counts: list[int] = []
    sums: list[float] = []
    for c, v in values.items():
        if c.kind == "counter":
            assert isinstance(v, int)
            counts.append(v)
        elif c.kind == "histogram":
            assert isinstance(v, tuple)
            counts.extend(int(x) for x in v[0])
            sums.append(v[1])
    gauges = [float(v) for c, v in values.items() if c.kind == "gauge" and not isinstance(v, tuple)]
    return Frame(
        tid,
        t0,
        t1,
        layout,
        np.asarray(gauges, float),
        np.asarray(counts, np.int64),
        np.asarray(sums, float),
        s.restart,
    )


_LAYOUTS: dict[tuple[Column, ...], Layout] = {}


def _layout(columns: tuple[Column, ...]) -> Layout:
    return _LAYOUTS.setdefault(columns, Layout(columns))


def only(r: Run, kind: str, replicas: Sequence[str] | None = None) -> None:
    """One incident above info, of that kind, on those replicas."""
    assert r.kinds == [kind], [(i.incident.kind, i.incident.title) for i in r.incidents]
    if replicas is not None:
        assert r.incidents[0].incident.replicas == tuple(replicas)


def infos(r: Run, kind: str) -> list[str]:
    """Titles of the incidents of an information kind."""
    return [t.incident.title for t in r.fold.tracker.tracked.values() if t.incident.kind == kind]
