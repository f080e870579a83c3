"""Remembering lines and sharing shapes never changes what is read: compared with reading each body from scratch."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.bodies import Pair, load_pair, sequence
from collectors.bodies import BodyReader, BodyTools, read_together
from collectors.dictionary import load_dictionary
from collectors.discovery import endpoint
from core.classes import ClassRules
from core.config_models import ScrapeSource
from core.frames import Column, Reading
from core.roles import Roles
from tests.collectors.test_scrape import vllm

DICTIONARY = load_dictionary()
SOURCE = ScrapeSource.model_validate({"name": "fleet", "targets": ["x"]})


def tools(classes: ClassRules | None = None) -> BodyTools:
    return BodyTools(DICTIONARY, classes or ClassRules.from_config([]), Roles())


def reader(shared: BodyTools, address: str = "h:1", **labels: str) -> BodyReader:
    return BodyReader(
        shared, shared.target(endpoint(SOURCE, address, labels or {"pool": "a"}), "fleet"), SOURCE
    )


def columns(r: Reading | None) -> dict[Column, list[float]]:
    """Values by column, gaps as NaN."""
    if r is None:
        return {}
    out = {}
    for c, (g, n, s) in zip(r.layout.columns, r.layout.slots, strict=True):
        counts = [math.nan if v < 0 else float(v) for v in r.counts[n]]
        out[c] = [*map(float, r.gauges[g]), *counts, *map(float, r.sums[s])]
    return out


def agree(remembered: Reading | None, fresh: Reading | None) -> None:
    got, want = columns(remembered), columns(fresh)
    for c, values in want.items():
        assert np.array_equal(got[c], values, equal_nan=True), c
    for c, values in got.items():
        if c not in want:  # a series that has just gone: kept as a gap for a few scrapes
            assert all(math.isnan(v) for v in values), c


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair()


def test_a_living_engine_is_read_the_same_with_and_without_memory(pair: Pair) -> None:
    one = reader(tools())
    for k, body in enumerate(sequence(pair, 30, 7)):
        agree(one.read(body, 15.0 * k)[0], reader(tools()).read(body, 15.0 * k)[0])


VALUES = ["0", "1.0", "12345.0", "1.5e+06", "NaN", "+Inf", "-1", "-1.0", "1_000", "", "x", "1 1700000000"]
VALUES += ["1,2", "true", "null", "[1]", '"1"', "0x10", "01", "1.", "1e999", "123456789012345678901234567890"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_random_damage_is_read_as_the_line_by_line_cache_reads_it(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    one, slow = reader(tools()), reader(tools())
    for k in range(steps):
        lines = vllm(k + 1, requests=k + 3).decode().split("\n")
        for _ in range(rng.choice([0, 0, 1, 2])):
            i = rng.randrange(len(lines))
            what = rng.choice(["value", "drop", "twice", "swap", "comment", "cr", "new"])
            if what == "value" and " " in lines[i] and not lines[i].startswith("#"):
                lines[i] = lines[i].rsplit(" ", 1)[0] + " " + rng.choice(VALUES)
            elif what == "drop":
                del lines[i]
            elif what == "twice":
                lines.insert(i, lines[i])
            elif what == "swap":
                j = rng.randrange(len(lines))
                lines[i], lines[j] = lines[j], lines[i]
            elif what == "comment":
                lines.insert(i, "# HELP x y")
            elif what == "cr":
                lines[i] += "\r"
            elif what == "new":
                lines.insert(i, 'vllm:num_requests_waiting{engine="0",model_name="m"} 4.0')
        body = "\n".join(lines).encode()
        slow._known = None
        (got, problems), (want, expected) = one.read(body, 15.0 * k), slow.read(body, 15.0 * k)
        assert columns(got).keys() == columns(want).keys()
        agree(got, want)
        assert {(p.code, p.subject) for p in problems} == {(p.code, p.subject) for p in expected}


def test_an_equal_engine_takes_over_the_shape_and_keeps_its_own_labels(pair: Pair) -> None:
    shared = tools(
        ClassRules.from_config(
            [{"name": "chat", "match": ['pool="a"']}, {"name": "code", "match": ['pool="b"']}]
        )
    )
    bodies = sequence(pair, 3, 7)
    first = reader(shared, "h1:1", pool="a")
    first.read(bodies[0], 0.0)
    for address, pool, wanted in (
        ("h2:1", "a", "chat"),
        ("h3:1", "b", "code"),
        ("h4:1", "c", "unclassified"),
    ):
        other = reader(shared, address, pool=pool)
        alone = reader(tools(shared.classes), address, pool=pool)
        for k, body in enumerate(bodies):
            got, want = other.read(body, 15.0 * k)[0], alone.read(body, 15.0 * k)[0]
            assert got is not None
            assert want is not None
            assert got.target == want.target
            assert got.layout == want.layout
            assert {c.label("class") for c in got.layout.columns} == {wanted}
            agree(got, want)
    assert len(shared.shapes) == 1


def test_what_one_target_has_learnt_of_its_percentages_is_not_believed_of_another() -> None:
    def body(usage: float) -> bytes:
        return vllm() + f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {usage}\n'.encode()

    def usage(r: Reading | None) -> float:
        (found,) = [v for c, v in columns(r).items() if c.signal == "kv_cache_usage_ratio"]
        return found[0]

    shared = tools()
    percent, ratio = reader(shared, "h1:1"), reader(shared, "h2:1")
    assert usage(percent.read(body(42.0), 0.0)[0]) == pytest.approx(0.42)
    assert usage(ratio.read(body(0.5), 0.0)[0]) == pytest.approx(0.5)
    for together in ([percent, ratio], [ratio, percent]):
        items = []
        for r in together:
            values, _ = r.values(body(0.9 if r is percent else 0.8), 15.0)
            assert values is not None
            items.append((r, values, 15.0))
        found = dict(zip(together, map(usage, read_together(items)), strict=True))
        assert found[percent] == pytest.approx(0.009)
        assert found[ratio] == pytest.approx(0.8)
    late = reader(shared, "h3:1")
    late.read(body(0.4), 0.0)
    values = [(r, r.values(body(u), 30.0)[0], 30.0) for r, u in ((late, 33.0), (ratio, 0.7))]
    found_late, found_ratio = map(usage, read_together([(r, v, t) for r, v, t in values if v is not None]))
    assert (found_late, found_ratio) == (pytest.approx(0.33), pytest.approx(0.7))


def test_reading_together_equals_reading_alone(pair: Pair) -> None:
    shared = tools()
    fleets = [sequence(pair, 2, seed) for seed in range(6)]
    readers = [reader(shared, f"h{i}:1") for i in range(6)]
    for r, bodies in zip(readers, fleets, strict=True):
        r.read(bodies[0], 0.0)
    items = []
    for r, bodies in zip(readers, fleets, strict=True):
        values, _ = r.values(bodies[1], 15.0)
        assert values is not None
        items.append((r, values, 15.0))
    for together, (_, bodies) in zip(read_together(items), zip(readers, fleets, strict=True), strict=True):
        agree(together, reader(tools()).read(bodies[1], 15.0)[0])


def test_a_target_whose_cache_was_dropped_still_notices_a_new_series() -> None:
    one = reader(tools())
    for k in range(30):
        one.read(vllm(k, requests=k + 3), 15.0 * k)
    assert one._cache is None
    more = vllm(30, requests=33) + b'vllm:num_preemptions_total{engine="0",model_name="m"} 3.0\n'
    got = one.read(more, 450.0)[0]
    agree(got, reader(tools()).read(more, 450.0)[0])
    assert any(c.signal == "preemptions_total" for c in columns(got))
