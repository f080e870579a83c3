import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.records import RequestRecord
from core.requests import BANDS, RequestKey, add_cells, band, fine_edges, fold

EDGES = fine_edges([1.0, 5.0])
LATENCY = st.none() | st.floats(-1, 2e4) | st.just(math.nan) | st.just(math.inf)
RECORDS = st.lists(
    st.builds(
        RequestRecord,
        ts=st.floats(0, 600),
        status=st.sampled_from([200, 499, 502]),
        workload_class=st.sampled_from(["chat", "batch"]),
        duration_s=LATENCY,
        ttft_s=LATENCY,
        prompt_tokens=st.none() | st.integers(0, 200_000),
        output_tokens=st.none() | st.integers(0, 5_000),
    ),
    max_size=60,
)


def test_edges_are_geometric_and_hold_the_thresholds_exactly() -> None:
    edges = fine_edges([0.9, 5.0, 1.0])
    assert edges[0] == 0.001
    assert edges[-1] == 1e4
    assert {0.9, 1.0, 5.0} <= set(edges)
    ratios = [b / a for a, b in itertools.pairwise(edges)]
    assert max(ratios) <= 2 ** (1 / 8) * 1.0001
    assert len(edges) < 200
    assert fine_edges([1.024]).count(1.024) == 1  # it is on the grid already
    assert fine_edges([math.nan, -1, 0, math.inf]) == fine_edges()


@pytest.mark.parametrize(
    ("tokens", "name"),
    [
        (0, "0-1k"),
        (999, "0-1k"),
        (1000, "1-4k"),
        (16_000, "16-64k"),
        (64_000, "64k+"),
        (10**9, "64k+"),
        (None, "unknown"),
        (-1, "unknown"),
    ],
)
def test_prompt_lengths_fall_into_bands(tokens: int | None, name: str) -> None:
    assert band(tokens) == name
    assert name in (*BANDS, "unknown")


@given(RECORDS)
@settings(deadline=None)
def test_folding_loses_no_attempt_and_no_token(records: list[RequestRecord]) -> None:
    cells = fold(records, EDGES)
    assert sum(c.n for c in cells.values()) == len(records)
    assert sum(c.prompt_tokens for c in cells.values()) == sum(r.prompt_tokens or 0 for r in records)
    known = [r.ttft_s for r in records if r.ttft_s is not None and 0 <= r.ttft_s < math.inf]
    assert sum(int(c.ttft[1].sum()) for c in cells.values()) == len(known)
    assert sum(c.ttft_sum for c in cells.values()) == pytest.approx(math.fsum(known))
    for key, cell in cells.items():
        assert key.minute % 60 == 0
        assert int(cell.ttft[1].sum() + cell.age[1].sum()) <= cell.n


@given(RECORDS, st.integers(0, 60))
@settings(deadline=None)
def test_folding_in_two_halves_and_adding_gives_the_same(records: list[RequestRecord], cut: int) -> None:
    whole, parts = fold(records, EDGES), fold(records[:cut], EDGES)
    add_cells(parts, fold(records[cut:], EDGES))
    assert parts.keys() == whole.keys()
    for key, cell in whole.items():
        other = parts[key]
        assert (cell.n, cell.prompt_tokens, cell.output_tokens) == (
            other.n,
            other.prompt_tokens,
            other.output_tokens,
        )
        for a, b in ((cell.ttft, other.ttft), (cell.age, other.age), (cell.duration, other.duration)):
            np.testing.assert_array_equal(a[1], b[1])


def test_a_cell_holds_what_its_attempts_have_in_common() -> None:
    record = RequestRecord(
        125.5, 200, "chat", 2.0, 0.5, 1500, 70, "acme", "glm-5", "chat-a", "chat-a-0", "r1"
    )
    ((key, cell),) = fold([record, record], EDGES, point="router").items()
    assert key == RequestKey(120, "router", "chat", "acme", "glm-5", "chat-a", "1-4k", 200, "r1")
    assert (cell.n, cell.prompt_tokens, cell.output_tokens, cell.duration_sum) == (2, 3000, 140, 4.0)
    assert cell.ttft[1][EDGES.index(next(e for e in EDGES if e >= 0.5))] == 2
    assert cell.age[1].sum() == 0


def test_a_latency_on_an_edge_belongs_to_the_bucket_below_it() -> None:
    ((_, cell),) = fold([RequestRecord(0, 200, "a", ttft_s=5.0)], EDGES).items()
    assert cell.ttft[1][EDGES.index(5.0)] == 1


def test_cells_with_other_edges_are_not_added() -> None:
    ((_, a),) = fold([RequestRecord(0, 200, "a")], EDGES).items()
    ((_, b),) = fold([RequestRecord(0, 200, "a")], fine_edges()).items()
    with pytest.raises(ValueError, match="edges"):
        _ = a + b
