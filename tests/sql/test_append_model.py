"""``append`` against a slow model of itself on drawn sequences: restarts, gaps, duplicates, disorder, two sources, back-fill."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.frames import Column, Reading
from sql.store import Store
from tests.sql.make import ABORTED, DONE, EDGES, RUNNING, SECONDS, T0, TTFT, down, reading, target
from tests.sql.model import Model, all_slots

_fresh = itertools.count()
RANKED = Column("ttft_seconds", (("class", "chat"), ("rank", "1")), "histogram", EDGES)
LAYOUTS: tuple[tuple[Column, ...], ...] = (
    (TTFT, DONE, RUNNING),
    (DONE, ABORTED, SECONDS, TTFT, RANKED),
    (RUNNING, ABORTED),
)

small = st.integers(-1, 6)
real = st.sampled_from([math.nan, 0.0, 0.5, 2.0, 3.25])


def value(c: Column) -> st.SearchStrategy[Any]:
    if c.kind == "histogram":
        return st.tuples(st.tuples(*[small] * 4), real)
    return small if c.kind == "counter" else real


@st.composite
def one_reading(draw: st.DrawFn, pool: str) -> Reading:
    """At a few times, so that duplicates, disorder and skew within two seconds are common; values climb with time, mostly."""
    of = target(
        draw(st.sampled_from(["a", "b"])), pool=pool, source=draw(st.sampled_from(["s1", "s1", "s2"]))
    )
    t = draw(st.one_of(st.integers(0, 12).map(lambda i: 15.0 * i), st.sampled_from([1.0, 46.5, 30_000.0])))
    if draw(st.integers(0, 9)) == 0:
        return down(t, of=of)
    climb = draw(st.sampled_from([int(t), int(t), int(t), 0]))
    values = {}
    for c in draw(st.sampled_from(LAYOUTS)):
        v = draw(value(c))
        if c.kind == "histogram":
            v = (tuple(n + climb if n >= 0 else n for n in v[0]), v[1] + climb)
        elif c.kind == "counter":
            v = v + climb if v >= 0 else v
        elif c.kind == "sum":
            v = v + climb
        values[c] = v
    return reading(t, values, of=of, start=draw(st.sampled_from([None, None, T0 - 50, T0 - 49, T0 + 40])))


@st.composite
def calls(draw: st.DrawFn) -> list[tuple[str, list[Reading]]]:
    pool = f"pool{next(_fresh)}"
    streams = st.sampled_from(["live", "live", "backfill", "other"])
    return draw(
        st.lists(st.tuples(streams, st.lists(one_reading(pool), max_size=12)), min_size=1, max_size=6)
    )


@st.composite
def ticks(draw: st.DrawFn) -> list[tuple[str, list[Reading]]]:
    """A fleet scraped as it usually is: all replicas at once, every 15 s; now and then one restarts or lacks something."""
    pool = f"pool{next(_fresh)}"
    columns = draw(st.sampled_from(LAYOUTS))
    odd = st.sampled_from(
        ["", "", "", "", "restart", "gap", "moved", "other source", "late", "away", "layout"]
    )
    out = []
    for tick in range(draw(st.integers(2, 7))):
        batch = []
        for i in range(3):
            what = draw(odd)
            n = tick + i if what != "restart" else 0
            values: dict[Column, Any] = {}
            for c in columns if what != "layout" else LAYOUTS[1]:
                gap = what == "gap" and draw(st.booleans())
                if c.kind == "histogram":
                    values[c] = ((-1,) * 4, math.nan) if gap else ((n, 2 * n, 0, n), 1.5 * n)
                elif c.kind == "counter":
                    values[c] = -1 if gap else n
                else:
                    values[c] = math.nan if gap else 0.25 * n
            t = 15.0 * tick - (40 if what == "late" else 0)
            if what != "away":
                of = target(f"r{i}", pool=pool, source="s2" if what == "other source" else "s1")
                batch.append(reading(t, values, of=of, start=T0 + 7 if what == "moved" else T0 - 60))
        out.append(("live" if draw(st.integers(0, 5)) else "backfill", batch))
    return out


@pytest.fixture(scope="module")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('model') / 'x.db'}") as store:
        yield store


@pytest.fixture(scope="module")
def postgres_store(postgres_server: str) -> Any:
    with Store.open(f"{postgres_server}/model") as store:
        yield store


def check(store: Store, sequence: list[tuple[str, list[Reading]]]) -> None:
    """The pools of a sequence are its own, so that one database serves all examples."""
    model = Model()
    for stream, readings in sequence:
        model.append(readings, stream)
        store.append(readings, stream=stream, events=False)
    compare(store, model)
    # once more, all of it: a live stream must change nothing
    for _, readings in sequence:
        assert store.append(readings, events=False).inserted == len(new_frames(model, readings))
    compare(store, model)


def new_frames(model: Model, readings: list[Reading]) -> list[int]:
    """What the model makes of a repetition in the live stream: readings after the head may exist if they were skew."""
    before = {k: set(v) for k, v in model.frames.items()}
    model.append(readings, "live")
    return [t for k, v in model.frames.items() for t in v if t not in before.get(k, ())]


def compare(store: Store, model: Model) -> None:
    pools = {key[1] for key in model.frames} | {key[1] for key in model.heads}
    if not pools:
        return
    keys = {t.id: t.target.key for t in store.targets() if t.target.pool in pools}
    found: dict[Any, dict[int, Any]] = {}
    for f in store.frames(0, 1e11, pools=sorted(pools)):
        found.setdefault(keys[f.target_id], {})[round(f.t1 * 1000)] = f
    expected = {k: v for k, v in model.frames.items() if v}
    assert {k: sorted(v) for k, v in found.items()} == {k: sorted(v) for k, v in expected.items()}
    for key, spans in expected.items():
        for t1, span in spans.items():
            f = found[key][t1]
            assert (round(f.t0 * 1000), f.reset) == (span.t0, span.reset)
            flat = {"gauge": iter(f.gauges), "count": iter(f.counts), "sum": iter(f.sums)}
            for slot in all_slots(f):
                want, got = span.values[slot], next(flat[slot[1]])
                if slot[1] == "count":
                    assert got == (-1 if want is None else want)
                else:
                    assert (math.isnan(got) and want is None) or got == pytest.approx(want, rel=1e-6)
    for step, per_replica in ((60, False), (3600, False), (300, True)):
        rows = {}
        for signal in ("ttft_seconds", "request_success_total", "requests_running", "ttft_seconds_sum"):
            for r in store.rollups(
                signal, 0, 1e11, resolution=step, pools=sorted(pools), per_unit=per_replica
            ):
                maximum = -math.inf if r.max_ is None else r.max_
                key = (r.ts, r.class_, r.pool, r.unit, r.signal, r.labels, r.edges)
                rows[key] = [r.n, r.total, maximum, *r.counts.tolist()]
        wanted = model.rollups(step, per_replica=per_replica)
        assert rows.keys() == wanted.keys()
        for k, row in wanted.items():
            assert rows[k] == pytest.approx(row, rel=1e-6)


EXAMPLES = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@settings(EXAMPLES, max_examples=120)
@given(sequence=calls())
def test_append_does_what_the_slow_model_does(
    sqlite_store: Store, sequence: list[tuple[str, list[Reading]]]
) -> None:
    check(sqlite_store, sequence)


@settings(EXAMPLES, max_examples=100)
@given(sequence=ticks())
def test_whole_ticks_do_what_the_slow_model_does(
    sqlite_store: Store, sequence: list[tuple[str, list[Reading]]]
) -> None:
    check(sqlite_store, sequence)


@pytest.mark.postgres
@settings(EXAMPLES, max_examples=25)
@given(sequence=st.one_of(calls(), ticks()))
def test_append_does_what_the_slow_model_does_on_postgresql(
    postgres_store: Store, sequence: list[tuple[str, list[Reading]]]
) -> None:
    check(postgres_store, sequence)
