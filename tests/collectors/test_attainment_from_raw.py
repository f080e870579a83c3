"""Attainment from the stored minutes of a gateway log against a count of the raw attempts, one by one."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.requests import import_requests
from core.slo import Objective, Tally, from_histograms, good_bad
from sql.store import Store
from tests.collectors.intake import configured

T0 = 1_790_000_040
CHAT = Objective("chat-ttft", "chat", "ttft_seconds", 1.1, 0.99, 28 * 86_400.0)
COARSE = (0.25, 0.5, 1.0, 1.1, 2.5, 5.0)
BETWEEN = (0.5, 1.0, 2.5)
"""Edges without the threshold."""
TIMES = st.sampled_from([0.0, 0.001, 0.3, 1.0, 1.0999, 1.1, 1.1001, 2.5, 4.0, 900.0, 20_000.0])
_fresh = itertools.count()


@dataclass(frozen=True)
class Attempt:
    """What happened: the first token came after ``first`` seconds (None: never), the attempt ended after ``end``."""

    minute: int
    status: int
    first: float | None
    end: float

    def judge(self) -> str:
        """Good, bad or excluded, as the documentation of objectives says it."""
        if self.status in (429, 503) or self.status >= 500:
            return "bad"
        if 200 <= self.status < 300:
            return "good" if self.first is not None and self.first <= CHAT.threshold else "bad"
        if self.status in (0, 499):
            waited = self.end if self.first is None else self.first
            return "bad" if waited > CHAT.threshold else "excluded"
        return "excluded"

    def line(self, hide: str) -> str:
        """As a gateway logs it; some do not know the first token, some do not know the duration."""
        data = {"ts": T0 + 60 * self.minute + 1.5, "workload": "chat", "status": self.status}
        if self.first is not None and hide != "ttft_s":
            data["ttft_s"] = self.first
        if hide != "duration_s":
            data["duration_s"] = self.end
        return json.dumps(data)


@st.composite
def attempts(draw: st.DrawFn) -> Attempt:
    status = draw(st.sampled_from([200, 200, 200, 201, 400, 404, 429, 499, 499, 0, 500, 502, 503]))
    first = draw(TIMES) if 200 <= status < 300 else None
    return Attempt(draw(st.integers(0, 3)), status, first, draw(TIMES) + (first or 0.0))


def truth(many: list[Attempt]) -> tuple[Counter[str], Fraction | None]:
    counts = Counter(a.judge() for a in many)
    counted = counts["good"] + counts["bad"]
    return counts, Fraction(counts["good"], counted) if counted else None


def contains(tally: Tally, share: Fraction | None) -> bool:
    low, high = tally.attainment
    return share is None or low - 1e-12 <= share <= high + 1e-12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("raw")


def tallied(folder: Path, many: list[Attempt], hidden: list[str]) -> Tally:
    """Through a file and a database, as ``gustfront import-requests`` does it."""
    here = folder / str(next(_fresh))
    here.mkdir()
    config, classes, roles = configured(here)
    path = here / "g.jsonl"
    path.write_text("".join(a.line(h) + "\n" for a, h in zip(many, itertools.cycle(hidden), strict=False)))
    with Store.open(f"sqlite:///{here}/g.db") as store:
        import_requests(store, path, classes, roles, config=config)
        return good_bad(CHAT, dict(store.request_cells(0, 1e11)))


@given(st.lists(attempts(), min_size=1, max_size=40))
@settings(max_examples=25, deadline=None)
def test_a_log_that_tells_all_gives_the_exact_counts(folder: Path, many: list[Attempt]) -> None:
    counts, share = truth(many)
    tally = tallied(folder, many, [""])
    assert (tally.good, tally.bad, tally.excluded) == (counts["good"], counts["bad"], counts["excluded"])
    assert tally.exact
    assert tally.unmet == sum(a.status in (429, 503) for a in many)
    assert contains(tally, share)


@given(
    st.lists(attempts(), min_size=1, max_size=40),
    st.lists(st.sampled_from(["", "ttft_s", "duration_s"]), min_size=1, max_size=5),
)
@settings(max_examples=25, deadline=None)
def test_a_log_that_hides_times_gives_an_interval_that_holds_the_truth(
    folder: Path, many: list[Attempt], hidden: list[str]
) -> None:
    _, share = truth(many)
    assert contains(tallied(folder, many, hidden), share)


@given(st.lists(attempts(), max_size=60), st.sampled_from([COARSE, BETWEEN, (), (0.001,)]))
@settings(max_examples=200, deadline=None)
def test_an_engine_alone_gives_an_interval_that_holds_the_truth(
    many: list[Attempt], edges: tuple[float, ...]
) -> None:
    """The engine counts first tokens in its own buckets and how many clients left, not after how long."""
    counts, share = truth(many)
    first = [a.first for a in many if a.first is not None]
    at = np.searchsorted(np.array(edges), first, side="left")
    tally = from_histograms(
        CHAT,
        [(edges, np.bincount(at, minlength=len(edges) + 1).astype(np.int64))],
        aborted=sum(a.status in (0, 499) for a in many),
        errors=sum(a.status >= 500 and a.status != 503 for a in many),
        unmet=sum(a.status in (429, 503) for a in many),
    )
    assert contains(tally, share)
    if CHAT.threshold in edges and not any(a.status in (0, 499) for a in many):
        assert (tally.good, tally.bad) == (counts["good"], counts["bad"])
