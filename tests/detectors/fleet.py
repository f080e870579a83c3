"""A small made-up fleet whose every number is given: frames of vLLM-like replicas, and sampled outputs.

Each replica's behaviour is a :class:`Normal`; a fault is a function that changes it from some minute on.
Counts are Poisson draws from
a fixed seed, so that the detectors meet noise and every run is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from core.frames import Column, Frame, Layout, Target, column
from core.records import Event, OutputRecord
from detectors.contract import Context, Detector, Objective
from detectors.cube import Cube
from detectors.fold import Fold
from detectors.incidents import Change
from detectors.registry import detectors, wanted
from detectors.samples import Samples

START = 1_790_000_100.0
STEP = 15.0
TTFT_EDGES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
ITL_EDGES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
CONTEXT = Context((Objective("chat-ttft", "chat", "ttft_seconds", 1.0, 99.0),))


@dataclass(frozen=True)
class Normal:
    """What one replica does in a step. Times in seconds, rates per second."""

    arrivals: float = 4.0
    prompt: float = 2000.0
    output: float = 200.0
    hit: float = 0.8
    prefill: float = 0.12
    queue: float = 0.01
    itl: float = 0.02
    running: float = 10.0
    waiting: float = 0.0
    kv: float = 0.3
    preempted: float = 0.0
    finished: float | None = None
    clock: float = 1.98e9
    bad: float = 3e-4
    up: bool = True
    restart: bool = False
    frozen: bool = False
    missing: frozenset[str] = frozenset()


Change_ = Callable[[float, str, Normal], Normal]
"""(minute since start, replica, normal) -> what it does then."""


@dataclass
class History:
    """Frames, targets and outputs of one made-up history."""

    frames: list[Frame]
    targets: dict[int, Target]
    outputs: list[OutputRecord]
    minutes: float
    normals: dict[str, Normal] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """Unix time at which it ends."""
        return START + self.minutes * 60


def history(
    minutes: float = 60,
    replicas: Sequence[str] = ("a-0", "a-1", "a-2"),
    fault: Change_ | None = None,
    *,
    pool: str = "a",
    normal: Normal | Mapping[str, Normal] = Normal(),
    workload: str = "chat",
    seed: int = 1,
    scrape: float = STEP,
    sample: float = 0.0,
) -> History:
    """A history of one pool; ``fault`` changes what its replicas do; ``sample`` is the share of answers that are sampled."""
    rng = np.random.default_rng(seed)
    frames: list[Frame] = []
    targets: dict[int, Target] = {}
    outputs: list[OutputRecord] = []
    steps = int(minutes * 60 / scrape)
    for tid, name in enumerate(replicas, 1):
        targets[tid] = Target(f"{name}:8000", pool=pool, replica=name, components=("vllm",))
        base = normal if isinstance(normal, Normal) else normal[name]
        since = START
        for k in range(1, steps + 1):
            t = START + k * scrape - 2.0
            n = fault((t - START) / 60, name, base) if fault else base
            if not n.up:
                continue
            frames.append(_frame(rng, tid, since, t, n, workload))
            if not n.frozen:
                outputs.extend(_outputs(rng, name, pool, workload, t, scrape, n, sample))
            since = t
    frames.sort(key=lambda f: f.t1)
    return History(frames, targets, outputs, minutes)


def _frame(rng: np.random.Generator, tid: int, t0: float, t1: float, n: Normal, workload: str) -> Frame:
    span = t1 - t0
    arrived = 0 if n.frozen else int(rng.poisson(n.arrivals * span))
    rate = n.arrivals if n.finished is None else n.finished
    done = 0 if n.frozen else int(rng.poisson(rate * span))
    queue = n.queue * rng.lognormal(-0.1, 0.5, arrived)
    ttft = queue + n.prefill * rng.lognormal(-0.1, 0.5, arrived)
    itl = n.itl * rng.lognormal(0, 0.2, 200)
    queries = int(arrived * n.prompt)
    values: dict[Column, float | tuple[np.ndarray, float]] = {
        column("requests_running", class_=workload): float(rng.poisson(n.running))
        if not n.frozen
        else n.running,
        column("requests_waiting", class_=workload): float(rng.poisson(n.waiting))
        if not n.frozen
        else n.waiting,
        column("kv_cache_usage_ratio", class_=workload): min(
            1.0, n.kv * (1.0 if n.frozen else rng.normal(1, 0.03))
        ),
        column("kv_cache_capacity", class_=workload): 500_000.0,
        column("gpu_sm_clock_hz", class_=workload): n.clock,
        column("prefix_cache_queries_tokens_total", "counter", class_=workload): queries,
        column("prefix_cache_hit_tokens_total", "counter", class_=workload): int(
            queries * np.clip(rng.normal(n.hit, 0.01), 0, 1)
        ),
        column("preemptions_total", "counter", class_=workload): int(rng.poisson(n.preempted * span)),
        column("request_success_total", "counter", class_=workload): done,
        column("generation_tokens_total", "counter", class_=workload): int(done * n.output),
        column("prompt_tokens_total", "counter", class_=workload): queries,
        column("ttft_seconds", "histogram", TTFT_EDGES, class_=workload): _hist(ttft, TTFT_EDGES),
        column("queue_time_seconds", "histogram", TTFT_EDGES, class_=workload): _hist(queue, TTFT_EDGES),
        column("inter_token_latency_seconds", "histogram", ITL_EDGES, class_=workload): _hist(
            itl if arrived else itl[:0], ITL_EDGES
        ),
    }
    kept = {c: v for c, v in values.items() if c.signal not in n.missing}
    layout = _layout(tuple(kept))
    gauges = [v for c, v in kept.items() if c.kind == "gauge"]
    counts: list[int] = []
    sums: list[float] = []
    for c, v in kept.items():
        if c.kind == "counter":
            assert isinstance(v, int)
            counts.append(v)
        elif c.kind == "histogram":
            assert isinstance(v, tuple)
            counts.extend(v[0])
            sums.append(v[1])
    return Frame(
        tid,
        t0,
        t1,
        layout,
        np.asarray(gauges, float),
        np.asarray(counts, np.int64),
        np.asarray(sums, float),
        n.restart,
    )


_LAYOUTS: dict[tuple[Column, ...], Layout] = {}


def _layout(columns: tuple[Column, ...]) -> Layout:
    return _LAYOUTS.setdefault(columns, Layout(columns))


def _hist(x: np.ndarray, edges: tuple[float, ...]) -> tuple[np.ndarray, float]:
    return np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1), float(x.sum())


def _outputs(
    rng: np.random.Generator,
    name: str,
    pool: str,
    workload: str,
    t: float,
    span: float,
    n: Normal,
    share: float,
) -> Iterable[OutputRecord]:
    for i in range(int(rng.poisson(n.arrivals * span * share))):
        bad = rng.random() < n.bad
        ts = t - float(rng.random()) * span
        yield OutputRecord(
            f"{name}-{t:.0f}-{i}",
            ts,
            ts - 4.0,
            workload,
            pool=pool,
            replica=name,
            session=f"{name}-{int(rng.integers(1e9))}",
            prompt_tokens=int(n.prompt),
            output_tokens=int(n.output),
            accept_length=1.1 if bad else 2.7,
            verdict="hard" if bad else "clean",
            rules={"script_soup": 1.0} if bad else {},
        )


def cube_of(h: History, items: Sequence[Detector] | None = None, until: float | None = None) -> Cube:
    """The cube of a history, for these detectors."""
    needs, hists = wanted(tuple(items or detectors()))
    cube = Cube(needs, hists, start=START)
    cube.extend(h.frames, h.targets, until or h.end)
    return cube


@dataclass
class Run:
    """What a run of the fold said."""

    fold: Fold
    changes: list[tuple[float, Change]]

    @property
    def incidents(self) -> list[Change]:
        """The last state of each incident at ticket severity or above."""
        last = {c.incident.id: c for _, c in self.changes}
        last.update({k: Change("", t.incident) for k, t in self.fold.tracker.tracked.items()})
        return [c for c in last.values() if c.incident.severity != "info"]

    @property
    def kinds(self) -> list[str]:
        """Kinds of those incidents, sorted."""
        return sorted(c.incident.kind for c in self.incidents)


def run(
    h: History,
    items: Sequence[Detector] | None = None,
    *,
    lag: float = 0.0,
    context: Context = CONTEXT,
    events: Sequence[Event] = (),
) -> Run:
    """Run the fold over a history, tick by tick."""
    items = tuple(items or detectors())
    cube, samples = cube_of(h, items), Samples.of(h.outputs)
    fold = Fold(context, items)
    changes = []
    now = START + STEP
    while now <= h.end:
        changes += [
            (now, c) for c in fold.tick(cube, samples, [e for e in events if e.ts <= now], now, now - lag)
        ]
        now += STEP
    assert not fold.errors, fold.errors
    return Run(fold, changes)


def after(minute: float, **changed: object) -> Change_:
    """From a minute on, all replicas behave so."""
    return lambda m, name, n: replace(n, **changed) if m >= minute else n  # type: ignore[arg-type]


def on(names: Sequence[str], minute: float, until: float = 1e9, **changed: object) -> Change_:
    """Between two minutes, some replicas behave so."""
    return lambda m, name, n: replace(n, **changed) if name in names and minute <= m < until else n  # type: ignore[arg-type]
