import contextlib
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core.errors import StoreError
from core.frames import Column, Layout, column
from core.packing import pack, samples, unpack

COUNTS = st.one_of(
    st.just(0),
    st.just(-1),
    st.integers(1, 300),
    st.sampled_from([254, 255, 256, 65534, 65535, 65536, 2**32 - 2, 2**32 - 1, 2**32, 2**63 - 1]),
    st.integers(0, 2**63 - 1),
)
REALS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 1.0, 249.0, 250.0, 251.0, 65535.0, 65536.0, -1.0, 0.1, 1e300, -1e-300, 5e-324]
    ),
    st.floats(),
    st.floats(width=32),
    st.integers(0, 10**6).map(float),
)


def layout_of(gauges: int, counters: int, sums: int) -> Layout:
    """A layout with that many slots of each sort."""
    return Layout(
        (
            *(column(f"g{i}") for i in range(gauges)),
            *(column(f"c{i}", "counter") for i in range(counters)),
            *(column(f"s{i}", "sum") for i in range(sums)),
        )
    )


@st.composite
def frames(draw: st.DrawFn) -> tuple[Layout, np.ndarray, np.ndarray, np.ndarray]:
    g, n, s = (draw(st.integers(0, 40)) for _ in range(3))
    return (
        layout_of(g, n, s),
        draw(hnp.arrays(np.float64, g, elements=REALS)),
        draw(hnp.arrays(np.int64, n, elements=COUNTS)),
        draw(hnp.arrays(np.float64, s, elements=REALS)),
    )


@given(frames())
@settings(max_examples=400, deadline=None)
def test_gauges_and_counts_come_back_as_they_were_and_sums_within_a_millionth(
    frame: tuple[Layout, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    layout, gauges, counts, sums = frame
    g, n, s = unpack(layout, pack(layout, gauges, counts, sums))
    np.testing.assert_array_equal(g, gauges)
    np.testing.assert_array_equal(np.signbit(g[~np.isnan(g)]), np.signbit(gauges[~np.isnan(gauges)]))
    np.testing.assert_array_equal(n, counts)
    np.testing.assert_allclose(s, sums, rtol=1e-6, atol=0)


@given(frames())
@settings(deadline=None)
def test_exact_sums_come_back_as_they_were(frame: tuple[Layout, np.ndarray, np.ndarray, np.ndarray]) -> None:
    layout, gauges, counts, sums = frame
    np.testing.assert_array_equal(unpack(layout, pack(layout, gauges, counts, sums, exact=True))[2], sums)


@given(frames(), st.binary(max_size=200), st.integers(0, 200))
@settings(deadline=None)
def test_a_damaged_blob_is_an_error_of_the_store_and_never_a_wrong_shape(
    frame: tuple[Layout, np.ndarray, np.ndarray, np.ndarray], noise: bytes, cut: int
) -> None:
    layout, *arrays = frame
    whole = pack(layout, *arrays)
    for blob in (noise, whole[:cut], whole + noise, b"\x01" + noise, b"\x02" + noise):
        with contextlib.suppress(StoreError):
            assert tuple(len(a) for a in unpack(layout, blob)) == layout.size


@pytest.mark.parametrize(
    "blob", [b"", b"\x00", b"\x01", b"\x02junk", b"\x01" + b"\xff" * 5, b"\x01" + b"\x00" * 99]
)
def test_a_blob_that_cannot_be_read_names_its_layout(blob: bytes) -> None:
    layout = layout_of(3, 9, 2)
    with pytest.raises(StoreError, match=layout.id):
        unpack(layout, blob)


def test_arrays_that_do_not_fit_the_layout_are_refused() -> None:
    with pytest.raises(ValueError, match="layout"):
        pack(layout_of(1, 1, 1), np.zeros(2), np.zeros(1, np.int64), np.zeros(1))


def vllm_like() -> tuple[Layout, np.ndarray, np.ndarray, np.ndarray]:
    """A frame in the shape of a vLLM scrape over 15 s: 16 histograms, of which all moved in some of their buckets."""
    rng = np.random.default_rng(7)
    edges = tuple(float(f"{0.001 * 2**i:.3g}") for i in range(15))
    columns = [column(f"g{i}") for i in range(9)]
    columns += [Column(f"h{i}", (), "histogram", edges) for i in range(16)]
    columns += [column(f"c{i}", "counter") for i in range(28)]
    layout = Layout(tuple(columns))
    counts = np.zeros(layout.size[1], dtype=np.int64)
    for _, where, _ in layout.slots[9:25]:
        counts[where] = np.bincount(np.clip(rng.normal(6, 1.2, 40).astype(int), 0, 15), minlength=16)
    counts[-28:-10] = rng.integers(0, 5000, 18)
    return layout, rng.integers(0, 60, 9).astype(float), counts, rng.uniform(0, 400, 16)


def test_a_busy_frame_takes_at_most_one_byte_and_a_tenth_a_sample_and_an_idle_one_next_to_nothing() -> None:
    layout, gauges, counts, sums = vllm_like()
    assert samples(layout) == 9 + 28 + 16 * 18
    assert len(pack(layout, gauges, counts, sums)) / samples(layout) <= 1.1
    assert len(pack(layout, gauges, counts * 0, sums * 0)) / samples(layout) <= 0.15


def test_packing_costs_little_beside_a_scrape() -> None:
    layout, gauges, counts, sums = vllm_like()
    best = min(_seconds(layout, gauges, counts, sums) for _ in range(20))
    assert best < 500e-6  # measured 55 µs on a quiet core; this only guards against a loop over elements


def _seconds(layout: Layout, gauges: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> float:
    start = time.perf_counter()
    for _ in range(20):
        pack(layout, gauges, counts, sums)
    return (time.perf_counter() - start) / 20
