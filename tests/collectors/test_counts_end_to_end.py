"""From the text of a scrape to the roll-ups: what is stored is what the engine itself counted, whatever happens on the way."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.dictionary import load_dictionary
from collectors.exposition import parse
from collectors.mapping import plan
from core.classes import ClassRules
from core.frames import Reading, Target
from sql.store import Store

T0 = 1_790_000_040.0
OLD, NEW = (0.1, 0.5, 2.0), (0.05, 0.25, 1.0, 8.0)
TTFT, GAP = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"
GAP_BEFORE = "vllm:time_per_output_token_seconds"
_fresh = itertools.count()


@dataclass
class Engine:
    """A process of vLLM that counts, and says so as vLLM does. ``times`` are all times to first token of this process."""

    start: float
    edges: tuple[float, ...]
    gap_name: str
    times: list[float] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=Counter)
    preempted: int = 0

    def text(self, hide: str = "") -> str:
        """The body of a scrape, without the family ``hide``."""
        lines = [f"process_start_time_seconds {self.start}", "vllm:num_requests_running NaN"]
        lines.append(f"vllm:num_preemptions_total {float(self.preempted)}")
        lines += [
            f'vllm:request_success_total{{finished_reason="{why}"}} {n}' for why, n in self.finished.items()
        ]
        for name in (TTFT, self.gap_name):
            for edge in (*self.edges, math.inf):
                n = sum(t <= edge for t in self.times)
                lines.append(f'{name}_bucket{{le="{"+Inf" if edge == math.inf else edge}"}} {n}')
            lines += [f"{name}_sum {math.fsum(self.times)}", f"{name}_count {len(self.times)}"]
        return "\n".join(line for line in lines if not hide or not line.startswith(hide)) + "\n"

    def counts(self) -> dict[tuple[object, ...], Counter[object]]:
        """What this process has counted, by signal and edges (histograms) or label (counters)."""
        at = np.searchsorted(np.array(self.edges), self.times, side="left").tolist()
        return {
            ("ttft_seconds", self.edges): Counter(at),
            ("inter_token_latency_seconds", self.edges): Counter(at),
            ("request_success_total",): Counter(self.finished),
            ("preemptions_total",): Counter({"": self.preempted}),
        }


def scrape(engine: Engine, t: float, pool: str, source: str, hide: str = "") -> Reading:
    found = parse(engine.text(hide))
    target = Target("r0:8000", pool=pool, replica="r0", source=source)
    p = plan(found.series, load_dictionary(), ClassRules(), target)
    return Reading(target, t, p.layout, *p.apply(found.values), p.start(found.values))


def stored(store: Store, pool: str, resolution: int) -> dict[tuple[object, ...], Counter[object]]:
    """The roll-ups in the form of :meth:`Engine.counts`."""
    out: dict[tuple[object, ...], Counter[object]] = {}
    for signal in (
        "ttft_seconds",
        "inter_token_latency_seconds",
        "request_success_total",
        "preemptions_total",
    ):
        for row in store.rollups(signal, 0, 1e11, resolution=resolution, pools=[pool]):
            if row.edges:
                counts = out.setdefault((signal, tuple(row.edges)), Counter())
                counts.update(dict(enumerate(row.counts.tolist())))
            else:
                out.setdefault((signal,), Counter())[dict(row.labels).get("finish_reason", "")] += row.n
    return {key: +counts for key, counts in out.items() if +counts}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(f"sqlite:///{tmp_path_factory.mktemp('counts') / 'x.db'}")


WORK = st.tuples(
    st.lists(st.floats(0.001, 20.0), max_size=5),
    st.sampled_from(["stop", "length", "abort"]),
    st.integers(0, 3),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["scrape"] * 6 + ["restart", "new buckets", "rename", "again", "nothing", "hide"]),
        WORK,
    ),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_the_roll_ups_hold_what_the_engine_counted(
    store: Store, steps: list[tuple[str, tuple[object, ...]]]
) -> None:
    """Restarts with the same or other buckets, missed scrapes, a family absent once, repeated deliveries, a metric that is
    renamed while it counts on, series that appear late, and two sources that take turns: only what a process counted after
    its last scrape is lost.
    """
    pool = f"p{next(_fresh)}"
    engine = Engine(T0 - 100.0, OLD, GAP_BEFORE, times=[0.3, 5.0], preempted=2)
    base = engine.counts()
    done: dict[tuple[object, ...], Counter[object]] = {}
    batches = [[scrape(engine, T0, pool, "a")], [scrape(engine, T0 + 5, pool, "b")]]
    for batch in batches:
        store.append(batch)
    last = base
    sources = itertools.cycle("ab")
    for i, (what, (times, why, preempted)) in enumerate(steps):
        t = T0 + 20.0 + 15.0 * i
        if what in ("restart", "new buckets"):
            edges = engine.edges if what == "restart" else NEW if engine.edges == OLD else OLD
            done = _sum(done, _less(last, base))
            base, last = {}, {}
            engine = Engine(t - 7.0, edges, engine.gap_name)
        engine.times += times  # type: ignore[arg-type]
        engine.finished[str(why)] += len(times)  # type: ignore[arg-type]
        engine.preempted += preempted  # type: ignore[operator]
        if what == "rename":
            engine.gap_name = GAP if engine.gap_name == GAP_BEFORE else GAP_BEFORE
        if what == "nothing":
            continue
        if what == "again":
            store.append(batches[i % len(batches)])
            continue
        if what == "hide" and i + 1 < len(steps):
            store.append([scrape(engine, t - 1.0, pool, next(sources), hide=TTFT)])
        batches.append([scrape(engine, t, pool, next(sources))])
        store.append(batches[-1])
        last = engine.counts()
    expected = {key: +counts for key, counts in _sum(done, _less(last, base)).items() if +counts}
    for resolution in (60, 3600):
        assert stored(store, pool, resolution) == expected


Counts = dict[tuple[object, ...], Counter[object]]


def _less(a: Counts, b: Counts) -> Counts:
    return {
        key: Counter({k: n - b.get(key, Counter())[k] for k, n in counts.items()})
        for key, counts in a.items()
    }


def _sum(a: Counts, b: Counts) -> Counts:
    return {key: a.get(key, Counter()) + b.get(key, Counter()) for key in {*a, *b}}
