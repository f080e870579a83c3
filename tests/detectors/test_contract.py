"""Every registered detector against every check of the contract."""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from core.kinds import KINDS
from detectors.contract import Context, Detector
from detectors.cube import Cube
from detectors.fold import Fold
from detectors.registry import detectors
from detectors.samples import EMPTY, Samples
from detectors.window import Window
from tests.detectors.fleet import CONTEXT, START, STEP, History, Normal, after, cube_of, history, on, run

MINUTES = 50
TICKS = range(int(30 * 60 / STEP), int(MINUTES * 60 / STEP) + 1, 7)


@pytest.fixture(scope="module")
def troubled() -> History:
    """A history in which something is wrong for every detector: a storm, a slow replica, bad outputs, a silent one."""

    def fault(m: float, name: str, n: Normal) -> Normal:
        if m < 32:
            return n
        if name == "a-0" and m < 34:
            return on([name], 32, running=25, kv=0.75)(m, name, n)
        if name == "a-0":
            return on(
                [name], 32, hit=0.1, prefill=1.5, running=40, waiting=20, queue=3, kv=0.9, finished=1.0
            )(m, name, n)
        if name == "a-1":
            return on([name], 32, itl=0.06, clock=1.1e9, bad=0.05)(m, name, n)
        return on([name], 36, frozen=True, running=5, waiting=5)(m, name, n)

    return history(MINUTES, fault=fault, sample=0.5)


def _evaluate(d: Detector, cube: Cube, samples: Samples, ticks: range = TICKS) -> list[tuple[Any, ...]]:
    """Baseline every five minutes, evaluation at each tick; what was found, as plain data."""
    out: list[tuple[Any, ...]] = []
    state: dict[str, Any] = {}
    baseline: dict[str, Any] | None = None
    for stop in ticks:
        w = Window(cube, min(stop, cube.cells), CONTEXT, samples)
        if baseline is None or w.end - baseline["as_of"] >= 300:
            due = w.end // 300 * 300
            baseline = d.fit(w.upto(int(due // STEP) - cube.first), due)
        v = d.evaluate(w, baseline, state)
        state = dict(v.state)
        out.append((stop, tuple(v.findings), json.dumps(state, sort_keys=True)))
    return out


def splitting_at_any_tick_changes_nothing(d: Detector, h: History) -> None:
    """Stop, write everything down as JSON, begin again in a new process: the same changes."""
    cube, samples = cube_of(h, [d]), Samples.of(h.outputs)

    def go(fold: Fold, ticks: list[float]) -> list[tuple[float, str, str]]:
        return [
            (t, c.action, json.dumps(c.incident.as_json()))
            for t in ticks
            for c in fold.tick(cube, samples, [], t, t)
        ]

    ticks = [START + STEP * k for k in range(int(25 * 60 / STEP), int(MINUTES * 60 / STEP))]
    whole = go(Fold(CONTEXT, [d]), ticks)
    for cut in (3, 31, 53, 77):
        first = Fold(CONTEXT, [d])
        head = go(first, ticks[:cut])
        state = json.loads(json.dumps(first.dump()))
        assert head + go(Fold(CONTEXT, [d], state), ticks[cut:]) == whole


def the_future_changes_nothing(d: Detector, h: History) -> None:
    """Cutting off what lies after a tick, or replacing it by nonsense, leaves everything before it as it was."""
    cube, samples = cube_of(h, [d]), Samples.of(h.outputs)
    stop = int(40 * 60 / STEP)
    ticks = range(TICKS.start, stop, 7)
    before = _evaluate(d, cube, samples, ticks)
    other = copy.deepcopy(cube)
    for name in other.names():
        other.scalar(name)[:, stop:] = 1e6
    end = (cube.first + stop) * STEP
    less = Samples.of([o for o in h.outputs if o.ts <= end])
    assert _evaluate(d, other, less, ticks) == before


def baselines_are_not_newer_than_the_tick(d: Detector, h: History) -> None:
    """What is learnt at a time does not depend on later data, and says as of when."""
    cube, samples = cube_of(h, [d]), Samples.of(h.outputs)
    stop = int(35 * 60 / STEP)
    w = Window(cube, stop, CONTEXT, samples)
    early = cube_of(h, [d], until=w.end)
    assert d.fit(w, w.end) == d.fit(
        Window(early, stop, CONTEXT, Samples.of([o for o in h.outputs if o.ts <= w.end])), w.end
    )
    assert d.fit(w, w.end)["as_of"] <= w.end


def everything_it_remembers_is_json(d: Detector, h: History) -> None:
    """Baseline and state survive a round through JSON, without NaN."""
    cube, samples = cube_of(h, [d]), Samples.of(h.outputs)
    w = Window(cube, cube.cells, CONTEXT, samples)
    baseline = d.fit(w, w.end)
    state = dict(d.evaluate(w, baseline, {}).state)
    for x in (baseline, state):
        assert json.loads(json.dumps(x, allow_nan=False)) == x


def the_same_input_gives_the_same_output(d: Detector, h: History) -> None:
    """Two evaluations of one window agree, and neither alters its input."""
    cube, samples = cube_of(h, [d]), Samples.of(h.outputs)
    w = Window(cube, cube.cells, CONTEXT, samples)
    baseline = d.fit(w, w.end)
    kept, state = copy.deepcopy(baseline), {}  # type: ignore[var-annotated]
    a = d.evaluate(w, baseline, state)
    b = type(d)().evaluate(Window(cube, cube.cells, CONTEXT, samples), baseline, {})
    assert (a.findings, a.state) == (b.findings, b.state)
    assert baseline == kept
    assert state == {}


def nothing_at_all_is_no_incident(d: Detector, h: History) -> None:
    """An empty window, a cube without a single replica."""
    cube = cube_of(h, [d], until=START + STEP)
    empty = Cube(d.needs, d.hists, start=START)
    empty.extend([], {}, START + 3600)
    for c in (cube, empty):
        w = Window(c, c.cells, CONTEXT, EMPTY)
        assert not d.evaluate(w, d.fit(w, w.end), {}).findings


def one_replica_is_enough(d: Detector, h: History) -> None:
    """A pool of one has no peers; that must not break anything, and a quiet one says nothing."""
    lone = history(35, ["a-0"], seed=5)
    assert not [
        f
        for _, found, _ in _evaluate(d, cube_of(lone, [d]), Samples.of(lone.outputs), range(120, 140, 5))
        for f in found
    ]


def missing_signals_are_tolerated(d: Detector, h: History) -> None:
    """Every signal in turn is taken away, then all of them."""
    signals = {n.signal for n in d.needs} | {h.partition(":")[0] for h in d.hists}
    for gone in [*({s} for s in sorted(signals)), signals]:
        few = history(
            33,
            ["a-0", "a-1"],
            after(31, hit=0.0, waiting=30, queue=5),
            normal=Normal(missing=frozenset(gone)),
        )
        for _, found, _ in _evaluate(d, cube_of(few, [d]), Samples.of(few.outputs), range(120, 132, 3)):
            for f in found:
                assert f.kind == d.kind


def what_it_says_is_complete(d: Detector, h: History) -> None:
    """A finding has where, when, numbers, look-alikes with results, a chain in time order and actions."""
    found = [
        f for _, fs, _ in _evaluate(d, cube_of(h, [d]), Samples.of(h.outputs), range(120, 201, 2)) for f in fs
    ]
    for f in found:
        assert f.kind == d.kind
        assert f.scope.pools
        assert f.scope.replicas
        assert f.onset <= f.at
        assert 0 < f.confidence <= 1
        assert f.title
        assert f.cause
        assert any(e.now is not None and np.isfinite(e.now) for e in f.evidence)
        assert len(f.ruled_out) >= 3
        assert all(r.test and r.result for r in f.ruled_out)
        times = [link["at"] for link in f.detail["chain"]]
        assert times == sorted(times)
        assert f.detail["actions"]["now"]
        assert f.detail["actions"]["tomorrow"]
        json.dumps(dict(f.detail), allow_nan=False)


def it_is_declared(d: Detector, h: History) -> None:
    """A kind of the table, needs, and a docstring with the sections that people look for."""
    assert d.kind in KINDS
    doc = importlib.import_module(type(d).__module__).__doc__ or ""
    for section in ("Idea", "Formula", "Signals", "Look-alikes", "Source"):
        assert f"\n{section}\n" in doc, section
    assert isinstance(d, Detector)


CHECKS: Mapping[str, Callable[[Detector, History], None]] = {
    f.__name__: f
    for f in (
        splitting_at_any_tick_changes_nothing,
        the_future_changes_nothing,
        baselines_are_not_newer_than_the_tick,
        everything_it_remembers_is_json,
        the_same_input_gives_the_same_output,
        nothing_at_all_is_no_incident,
        one_replica_is_enough,
        missing_signals_are_tolerated,
        what_it_says_is_complete,
        it_is_declared,
    )
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("kind", [d.kind for d in detectors()])
def test_contract(kind: str, check: str, troubled: History) -> None:
    """``check`` holds for ``kind``."""
    CHECKS[check](next(d for d in detectors() if d.kind == kind), troubled)


def test_kinds_are_registered_once_and_in_order_of_precedence() -> None:
    kinds = [d.kind for d in detectors()]
    assert len(set(kinds)) == len(kinds)
    assert kinds == sorted(kinds, key=lambda k: KINDS[k].precedence)


def test_a_detector_that_fails_does_not_silence_the_others() -> None:
    class Broken:
        kind = "host_stall"
        needs = ()
        hists = ()

        def fit(self, history: Window, as_of: float) -> dict[str, Any]:
            return {"as_of": as_of}

        def evaluate(self, window: Window, baseline: Any, state: Any) -> Any:
            raise ValueError("no good")

    h = history(45, fault=on(["a-2"], 30, frozen=True, running=5, waiting=5))
    items = [Broken(), *(d for d in detectors() if d.kind != Broken.kind)]
    cube, fold = cube_of(h, items), Fold(CONTEXT, items)
    changes = [
        c for k in range(100, 181) for c in fold.tick(cube, EMPTY, [], START + k * STEP, START + k * STEP)
    ]
    assert fold.errors == {"host_stall": "ValueError: no good"}
    assert "wedged" in {c.incident.kind for c in changes}


def test_a_shadowed_kind_reaches_nobody() -> None:
    h = history(45, fault=on(["a-2"], 30, frozen=True, running=5, waiting=5))
    context = Context(CONTEXT.objectives, frozenset({"wedged", "telemetry_fault"}))
    said = run(h, context=context)
    assert "wedged" not in said.kinds
    assert [f.kind for f in said.fold.shadow] == ["wedged"]
