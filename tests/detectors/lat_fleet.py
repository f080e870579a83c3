"""Made-up replicas whose requests, steps and ranks are given one by one: for placement, blocking, stalls and releases.

:class:`Step` says what one replica does in a scrape of 15 s; what is None is not exported. Numbers are Poisson draws from a fixed
seed unless ``exact``, so that a case can pass through printed numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.frames import Column, Frame, Layout, Target, column
from core.records import Event
from core.requests import RequestCount
from detectors.attempts import Attempts
from detectors.contract import Context, Detector, Objective
from detectors.fold import Fold
from detectors.registry import detectors
from detectors.samples import EMPTY
from tests.detectors.fleet import START, STEP, TTFT_EDGES, History, Run, cube_of

GAP_EDGES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
PROMPT_EDGES = (100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5)
GOAL = Context((Objective("chat-ttft", "chat", "ttft_seconds", 1.0, 99.0),))


@dataclass(frozen=True)
class Step:
    """One scrape of one replica: rates per second, times in seconds, lengths in tokens.

    ``ttft`` replaces queue + prefill. ``more`` are further requests of this scrape: (class, ttft, prompt length, how many);
    ``gaps`` further gaps between tokens: (seconds, how many); ``ranks`` (running, waiting) of each rank; ``hidden`` prompt tokens
    of ``more`` that come from the cache.
    """

    arrivals: float = 4.0
    finished: float | None = None
    prompt: float = 1500.0
    output: float = 200.0
    hit: float | None = 0.5
    prefill: float = 0.12
    queue: float | None = 0.01
    ttft: float | None = None
    itl: float | None = 0.02
    running: float = 10.0
    waiting: float = 0.0
    kv: float = 0.3
    clock: float | None = 1.98e9
    preempted: float = 0.0
    accepted: float | None = None
    grammar: float | None = None
    more: tuple[tuple[str, float, float, int], ...] = ()
    gaps: tuple[tuple[float, int], ...] = ()
    ranks: tuple[tuple[float, float], ...] = ()
    hidden: int = 0
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
    version: Callable[[str], str] = lambda name: "",
    workload: str = "chat",
    seed: int = 1,
) -> History:
    """A history of some pools."""
    rng = np.random.default_rng(seed)
    frames: list[Frame] = []
    targets: dict[int, Target] = {}
    names = [(p, n) for p, r in (pools or {"a": ("a-0", "a-1", "a-2")}).items() for n in r]
    for tid, (pool, name) in enumerate(names, 1):
        targets[tid] = Target(
            f"{name}:8000", pool=pool, replica=name, components=("vllm",), version=version(name)
        )
        since = START
        for k in range(1, int(minutes * 60 / STEP) + 1):
            t = START + k * STEP - 2.0
            s = say((t - START) / 60, name)
            if s.up:
                frames.append(_frame(rng, tid, since, t, s, workload, exact))
                since = t
    frames.sort(key=lambda f: f.t1)
    return History(frames, targets, [], minutes)


def _frame(
    rng: np.random.Generator, tid: int, t0: float, t1: float, s: Step, workload: str, exact: bool
) -> Frame:
    span = t1 - t0

    def count(rate: float) -> int:
        return int((t1 - 1e9) * rate) - int((t0 - 1e9) * rate) if exact else int(rng.poisson(rate * span))

    def level(x: float) -> float:
        return x if exact else float(rng.poisson(x))

    def times(mean: float, n: int) -> np.ndarray:
        return np.full(n, mean) if exact else mean * rng.lognormal(-0.1, 0.45, n)

    n, done = count(s.arrivals), count(s.arrivals if s.finished is None else s.finished)
    queue = times(s.queue or 0.0, n)
    ttft = queue + times(s.prefill, n) if s.ttft is None else times(s.ttft, n)
    more = sum(k for _, _, _, k in s.more)
    asked = int(n * s.prompt + sum(p * k for _, _, p, k in s.more))
    share = 0.0 if not s.hit else s.hit if exact else float(np.clip(rng.normal(s.hit, 0.01), 0, 1))
    found = int(n * s.prompt * share) + s.hidden
    columns: dict[Column, float | int | tuple[np.ndarray, float]] = {}

    def put(
        signal: str, value: object, kind: str = "gauge", edges: tuple[float, ...] = (), **labels: str
    ) -> None:
        if value is not None:
            labels.setdefault("class_", workload)
            columns[column(signal, kind, edges, **labels)] = value  # type: ignore[arg-type,assignment]

    if s.ranks:
        for i, (running, waiting) in enumerate(s.ranks):
            put("requests_running", level(running), rank=str(i))
            put("requests_waiting", level(waiting), rank=str(i))
    else:
        put("requests_running", level(s.running))
        put("requests_waiting", level(s.waiting))
    put("kv_cache_usage_ratio", s.kv)
    put("gpu_sm_clock_hz", s.clock)
    put("requests_waiting_by_reason", None if s.grammar is None else level(s.grammar), reason="grammar")
    if s.hit is not None:
        put("prefix_cache_queries_tokens_total", asked, "counter")
        put("prefix_cache_hit_tokens_total", found, "counter")
    put("preemptions_total", count(s.preempted), "counter")
    put("request_success_total", done + more, "counter")
    put("generation_tokens_total", int(done * s.output), "counter")
    put("prompt_tokens_total", asked, "counter")
    if s.accepted is not None:
        put("spec_accepted_tokens_total", int(100 * s.accepted), "counter")
        put("spec_drafts_total", 100, "counter")
    by_class: dict[str, list[np.ndarray]] = {workload: [ttft]}
    for name, seconds, _, k in s.more:
        by_class.setdefault(name, []).append(np.full(k, seconds))
    for name, parts in by_class.items():
        put("ttft_seconds", _hist(np.concatenate(parts), TTFT_EDGES), "histogram", TTFT_EDGES, class_=name)
    if s.queue is not None:
        put("queue_time_seconds", _hist(queue, TTFT_EDGES), "histogram", TTFT_EDGES)
    for name in by_class:
        own = [times(s.prompt, n)] if name == workload else []
        lengths = np.concatenate([*own, *(np.full(k, p) for c, _, p, k in s.more if c == name)])
        put("request_prompt_tokens", _hist(lengths, PROMPT_EDGES), "histogram", PROMPT_EDGES, class_=name)
    if s.itl is not None:
        usual = max(int(s.running * span / s.itl), 0) if s.arrivals else 0
        gaps = np.concatenate(
            [times(s.itl, min(usual, 300)), *(np.full(k, g) for g, k in s.gaps)] if usual else [np.zeros(0)]
        )
        counts, total = _hist(gaps, GAP_EDGES)
        if usual > 300:
            # So many gaps are not drawn one by one: the drawn ones stand for all.
            extra = _hist(times(s.itl, 300), GAP_EDGES)
            factor = (usual - 300) // 300
            counts, total = counts + extra[0] * factor, total + extra[1] * factor
        put("inter_token_latency_seconds", (counts, total), "histogram", GAP_EDGES)
    layout = _LAYOUTS.setdefault(tuple(columns), Layout(tuple(columns)))
    gauges = [v for c, v in columns.items() if c.kind == "gauge"]
    numbers: list[int] = []
    sums: list[float] = []
    for c, v in columns.items():
        if c.kind == "counter":
            numbers.append(v)  # type: ignore[arg-type]
        elif c.kind == "histogram":
            assert isinstance(v, tuple)
            numbers.extend(v[0])
            sums.append(v[1])
    return Frame(
        tid,
        t0,
        t1,
        layout,
        np.asarray(gauges, float),
        np.asarray(numbers, np.int64),
        np.asarray(sums, float),
        s.restart,
    )


_LAYOUTS: dict[tuple[Column, ...], Layout] = {}


def _hist(x: np.ndarray, edges: tuple[float, ...]) -> tuple[np.ndarray, float]:
    return np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1), float(x.sum())


Tenants = Callable[[float], Mapping[str, tuple[int, int]]]
"""minute -> tenant -> (answered attempts, prompt tokens of each)."""


def run(
    h: History,
    items: Sequence[Detector] | None = None,
    *,
    context: Context = GOAL,
    events: Sequence[Event] = (),
    tenants: Tenants | None = None,
    failed: Tenants | None = None,
    pool: str = "a",
    workload: str = "chat",
) -> Run:
    """Run the fold over a history, tick by tick, with a gateway log of some tenants where given."""
    items = tuple(items or detectors())
    cube = cube_of(h, items)
    if tenants is not None:
        cube.attempts = _log(h, tenants, failed, pool, workload)
    for tid, target in h.targets.items():
        if target.version:
            marks = [f.t1 for f in h.frames if f.target_id == tid and f.reset]
            cube.note_facts(target, marks[-1] if marks else START)
    fold, changes, now = Fold(context, items), [], START + STEP
    while now <= h.end:
        known = [e for e in events if e.ts <= now]
        changes += [(now, c) for c in fold.tick(cube, EMPTY, known, now, now)]
        now += STEP
    assert not fold.errors, fold.errors
    return Run(fold, changes)


def _log(h: History, tenants: Tenants, failed: Tenants | None, pool: str, workload: str) -> Attempts:
    log = Attempts(START)
    first = int(START // 60) * 60
    for minute in range(int(h.minutes) + 1):
        at = first + minute * 60
        rows = [
            RequestCount(
                at, "gateway", workload, tenant, pool, status, n, n * tokens, 0, 0.0, 0.0, (1.0,), {}
            )
            for status, say in ((200, tenants), (503, failed))
            if say is not None
            for tenant, (n, tokens) in say(minute).items()
        ]
        log.add(rows, at, at + 60)
    return log


def only(r: Run, kind: str, replicas: Sequence[str] | None = None) -> None:
    """One incident, of that kind, on those replicas."""
    assert r.kinds == [kind], [(i.incident.kind, i.incident.title) for i in r.incidents]
    if replicas is not None:
        assert r.incidents[0].incident.replicas == tuple(replicas)
