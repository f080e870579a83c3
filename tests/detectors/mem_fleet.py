"""Made-up replicas with the signals of memory, drafts, adapters, tiers and transfers: each number of a step is given.

:class:`Step` says what one replica does; what is None is not exported at all. Counts are Poisson draws from a fixed seed unless
``exact``, so that a case can pass through printed numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.frames import Column, Frame, Layout, Target, column
from core.records import Event, OutputRecord
from detectors.contract import Detector
from detectors.fold import Fold
from detectors.incidents import Change
from detectors.registry import detectors
from detectors.samples import Samples
from tests.detectors.fleet import CONTEXT, ITL_EDGES, START, STEP, TTFT_EDGES, History, Run, cube_of


@dataclass(frozen=True)
class Step:
    """Per second where nothing else is said; times in seconds, lengths in tokens, shares 0..1."""

    arrivals: float = 4.0
    finished: float | None = None
    prompt: float = 2000.0
    output: float = 200.0
    hit: float = 0.8
    prefill: float = 0.12
    queue: float = 0.01
    itl: float = 0.02
    tpot: float | None = None
    running: float = 10.0
    waiting: float = 0.0
    kv: float = 0.3
    capacity: float = 500_000.0
    preempted: float = 0.0
    retracted: float | None = None
    acceptance: float | None = None
    adapters: float | None = None
    keys: float | None = None
    transfer_s: float | None = None
    transfer_bytes: float = 1e9
    transfer_failed: float = 0.0
    tier_stored: float | None = None
    tier_loaded: float | None = None
    tier_queries: float | None = None
    tier_hits: float | None = None
    store_written: float | None = None
    idle_evict: float | None = None
    reuse_gap: float | None = None
    bad: float = 0.0
    restart: bool = False
    up: bool = True


Say = Callable[[float, str], Step]
"""(minute since start, replica) -> what it does then."""


def play(
    say: Say,
    minutes: float = 45,
    pools: Mapping[str, Sequence[str]] | None = None,
    *,
    exact: bool = False,
    sample: float = 0.0,
    turns: int = 1,
    roles: Mapping[str, str] | None = None,
    workload: str = "chat",
    seed: int = 1,
) -> History:
    """A history of some pools; ``sample`` is the share of answers that are sampled, each session with ``turns`` of them."""
    rng = np.random.default_rng(seed)
    frames: list[Frame] = []
    targets: dict[int, Target] = {}
    outputs: list[OutputRecord] = []
    tid = 0
    for pool, replicas in (pools or {"a": ("a-0", "a-1", "a-2")}).items():
        for name in replicas:
            tid += 1
            role = (roles or {}).get(pool, "")
            targets[tid] = Target(
                f"{name}:8000", pool=pool, replica=name, components=("vllm",), model="m", role=role
            )
            since = START
            for k in range(1, int(minutes * 60 / STEP) + 1):
                t = START + k * STEP - 2.0
                s = say((t - START) / 60, name)
                if not s.up:
                    continue
                frames.append(_frame(rng, tid, since, t, s, workload, exact))
                for i in range(int(rng.poisson(s.arrivals * STEP * sample)) if sample else 0):
                    number = len(outputs)
                    outputs.append(
                        OutputRecord(
                            f"{name}-{k}-{i}",
                            t - float(rng.random()) * STEP,
                            t - 4.0,
                            workload,
                            pool=pool,
                            replica=name,
                            session=f"{name}-s{number // turns}",
                            prompt_tokens=int(s.prompt),
                            output_tokens=int(s.output),
                            verdict="hard" if rng.random() < s.bad else "clean",
                            rules={},
                        )
                    )
                since = t
    frames.sort(key=lambda f: f.t1)
    return History(frames, targets, outputs, minutes)


def _frame(
    rng: np.random.Generator, tid: int, t0: float, t1: float, s: Step, workload: str, exact: bool
) -> Frame:
    span = t1 - t0

    def count(rate: float) -> int:
        # Exact: what is left of a whole event is carried by time, so that sums come out right.
        return int((t1 - 1e9) * rate) - int((t0 - 1e9) * rate) if exact else int(rng.poisson(rate * span))

    def level(x: float) -> float:
        return x if exact else float(rng.poisson(x))

    def times(mean: float, n: int) -> np.ndarray:
        return np.full(n, mean) if exact else mean * rng.lognormal(-0.1, 0.45, n)

    n, done = count(s.arrivals), count(s.arrivals if s.finished is None else s.finished)
    queue = times(s.queue, n)
    ttft = queue + times(s.prefill, n)
    asked = int(n * s.prompt)
    share = s.hit if exact else float(np.clip(rng.normal(s.hit, 0.01), 0, 1)) if s.hit else 0.0
    values: dict[Column, float | tuple[np.ndarray, float]] = {}

    def put(
        signal: str,
        value: float | tuple[np.ndarray, float] | None,
        kind: str = "gauge",
        edges: tuple[float, ...] = (),
        **labels: Any,
    ) -> None:
        if value is None:
            return
        if kind == "histogram":
            values[column(signal, "histogram", edges, class_=workload, **labels)] = value
        elif kind == "counter":
            assert isinstance(value, (int, float))
            values[column(signal, "counter", class_=workload, **labels)] = int(value)
        else:
            values[column(signal, class_=workload, **labels)] = value

    def rate(x: float | None) -> int | None:
        return None if x is None else count(x)

    put("requests_running", level(s.running))
    put("requests_waiting", level(s.waiting))
    put("kv_cache_usage_ratio", min(1.0, s.kv if exact else s.kv * rng.normal(1, 0.02)))
    put("kv_cache_capacity", s.capacity)
    put("lora_info", s.adapters)
    put("sessions_running", s.keys)
    put("prefix_cache_queries_tokens_total", asked, "counter")
    put("prefix_cache_hit_tokens_total", int(asked * share), "counter")
    put("preemptions_total", count(s.preempted), "counter")
    put("retractions", rate(s.retracted), "counter")
    put("request_success_total", done, "counter")
    put("generation_tokens_total", int(done * s.output), "counter")
    if s.acceptance is not None:
        drafts = int(done * s.output / (1 + 3 * s.acceptance))
        put("spec_drafts_total", drafts, "counter")
        put("spec_draft_tokens_total", 3 * drafts, "counter")
        put("spec_accepted_tokens_total", int(3 * drafts * s.acceptance), "counter")
    put("host_kv_offload", rate(s.tier_stored), "counter", op="store")
    put("host_kv_offload", rate(s.tier_loaded), "counter", op="load")
    put("external_prefix_cache", rate(s.tier_queries), "counter", op="query")
    put("external_prefix_cache", rate(s.tier_hits), "counter", op="hit")
    put("external_prefix_cache", rate(s.store_written), "counter", op="backup")
    put("ttft_seconds", _hist(ttft, TTFT_EDGES), "histogram", TTFT_EDGES)
    put("queue_time_seconds", _hist(queue, TTFT_EDGES), "histogram", TTFT_EDGES)
    put(
        "inter_token_latency_seconds", _hist(times(s.itl, 200 if n else 0), ITL_EDGES), "histogram", ITL_EDGES
    )
    if s.tpot is not None:
        put("time_per_output_token_seconds", _hist(times(s.tpot, done), ITL_EDGES), "histogram", ITL_EDGES)
    if s.transfer_s is not None:
        put("kv_transfer_time_seconds", _hist(times(s.transfer_s, n), TTFT_EDGES), "histogram", TTFT_EDGES)
        put(
            "kv_transfer_bytes",
            _hist(np.full(n, s.transfer_bytes), (1e8, 1e9, 1e10)),
            "histogram",
            (1e8, 1e9, 1e10),
        )
        put("kv_transfer_failures_total", count(s.transfer_failed), "counter", failure="transfer")
    for signal, mean in (
        ("kv_block_idle_before_evict_seconds", s.idle_evict),
        ("kv_block_reuse_gap_seconds", s.reuse_gap),
    ):
        if mean is not None:
            put(signal, _hist(times(mean, 20), (10.0, 60.0, 300.0)), "histogram", (10.0, 60.0, 300.0))
    return _pack(tid, t0, t1, values, s.restart)


_LAYOUTS: dict[tuple[Column, ...], Layout] = {}


def _pack(
    tid: int, t0: float, t1: float, values: Mapping[Column, float | tuple[np.ndarray, float]], reset: bool
) -> Frame:
    columns = tuple(values)
    gauges: list[float] = []
    counts: list[int] = []
    sums: list[float] = []
    for c, v in values.items():
        if isinstance(v, tuple):
            counts.extend(int(x) for x in v[0])
            sums.append(v[1])
        elif c.kind == "counter":
            counts.append(int(v))
        else:
            gauges.append(v)
    return Frame(
        tid,
        t0,
        t1,
        _LAYOUTS.setdefault(columns, Layout(columns)),
        np.asarray(gauges, float),
        np.asarray(counts, np.int64),
        np.asarray(sums, float),
        reset,
    )


def _hist(x: np.ndarray, edges: tuple[float, ...]) -> tuple[np.ndarray, float]:
    return np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1), float(x.sum())


MINE = frozenset(
    {
        "kv_leak",
        "kv_eviction_storm",
        "offload_thrash",
        "lora_thrash",
        "spec_decode_collapse",
        "kv_transfer_slow",
        "prefill_decode_imbalance",
        "prefix_cache_loss",
        "capacity_shortfall",
        "slow_replica",
        "degraded_generations",
        "wedged",
    }
)
"""Mine and their rivals; the others are tested against each other elsewhere."""


def items() -> tuple[Detector, ...]:
    """Detectors that could answer."""
    return tuple(d for d in detectors() if d.kind in MINE)


def said(
    say: Say,
    minutes: float = 42,
    events: Sequence[Event] = (),
    *,
    since: float = 20.0,
    **more: Any,
) -> Run:
    """A run over a made-up history, tick by tick from minute ``since`` on; ``more`` goes to :func:`play`."""
    h, who = play(say, minutes, **more), items()
    cube, samples = cube_of(h, who), Samples.of(h.outputs)
    fold = Fold(CONTEXT, who)
    changes: list[tuple[float, Change]] = []
    now = START + since * 60
    while now <= h.end:
        known = [e for e in events if e.ts <= now]
        changes += [(now, c) for c in fold.tick(cube, samples, known, now, now)]
        now += STEP
    assert not fold.errors, fold.errors
    return Run(fold, changes)


def from_minute(minute: float, base: Step, names: Sequence[str] | None = None, **changed: Any) -> Say:
    """Some replicas (all where None) behave otherwise from a minute on."""

    def say(m: float, name: str) -> Step:
        return replace(base, **changed) if m >= minute and (names is None or name in names) else base

    return say


def only(r: Run, kind: str, replicas: Sequence[str]) -> None:
    """One incident, of that kind, on those replicas."""
    assert r.kinds == [kind], [(i.incident.kind, i.incident.title) for i in r.incidents]
    assert r.incidents[0].incident.replicas == tuple(replicas)
