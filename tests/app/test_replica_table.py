"""The Replicas page's numbers: who stands out, against what, and as of when."""

from __future__ import annotations

import numpy as np
import pytest

from app.services import replica_detail, replica_table
from app.services.measures import MEASURES
from app.services.replica_table import deviation
from app.services.view import View, make_view
from sql.store import Store
from tests.app.history import END, STORM, History


def view_at(t: float) -> View:
    return make_view(t + 1e6, END, length=3600.0, as_of=t)


def test_the_stalled_replicas_come_first_and_say_by_what_they_stand_out(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        found = replica_table.table(store, view_at(END))
    assert {r.replica for r in found.rows[:2]} == {"coder-0", "coder-1"}
    assert all(r.odd() for r in found.rows[:2])
    assert [r.odd() for r in found.rows[2:]] == ["", "", ""]
    assert replica_table.own_share(found) == "2 of 5 replicas stand out"


def test_values_are_now_normal_and_the_others_of_the_pool(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        found = replica_table.table(store, view_at(END))
    row = found.row("coder", "coder-0")
    assert row is not None
    hit = row.values["hit_rate"]
    assert hit.now == pytest.approx(0.0)
    assert hit.normal == pytest.approx(0.95)
    # coder-1 finds nothing, coder-2 95 %: the median of the two others.
    assert hit.pool == pytest.approx(0.475)
    assert row.values["waiting"].now == pytest.approx(30.0)
    assert row.version == "1.0"
    assert row.started is not None
    assert row.rank_spread is None


def test_as_of_a_time_before_the_storm_nothing_stands_out(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        found = replica_table.table(store, view_at(STORM))
    assert replica_table.own_share(found) == "no replica stands out"
    assert found.end <= STORM


def test_a_filter_of_the_pool_leaves_its_replicas_alone(storm_history: History) -> None:
    view = make_view(END + 1e6, END, length=3600.0, as_of=END, pool="mixed")
    with Store.open(storm_history.url, read_only=True) as store:
        found = replica_table.table(store, view)
    assert found.names() == ["mixed / mixed-0", "mixed / mixed-1"]


def test_deviations_are_said_as_points_or_factors() -> None:
    assert (
        deviation(MEASURES["hit_rate"], 0.35, 0.95, "its normal")
        == "Prefix hit rate 60 points below its normal"
    )
    assert deviation(MEASURES["ttft_p99"], 12.0, 2.0, "its pool") == "TTFT p99 ×6 its pool"
    assert deviation(MEASURES["waiting"], 5.0, 0.0, "its normal").startswith("Requests waiting 5")
    assert deviation(MEASURES["ttft_p99"], float("nan"), 2.0, "its normal") == ""


def test_two_replicas_are_drawn_beside_the_median_of_the_others(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        found = replica_detail.load(store, view_at(END), "coder", ("coder / coder-0", "coder / coder-2"))
    charts = {c.measure.id: c for c in found.charts}
    assert [c.replica for c in charts["hit_rate"].chosen] == ["coder-0", "coder-2"]
    assert charts["hit_rate"].chosen[0].value[-1] == pytest.approx(0.0)
    assert charts["hit_rate"].chosen[1].value[-1] == pytest.approx(0.95)
    # One other replica is no group to take a median of.
    assert np.isnan(charts["hit_rate"].peers).all()
    assert "GPU clock" in found.missing
    assert [e.kind for e in found.events if e.kind == "deploy"] == ["deploy"]
    assert [i.id for i in found.incidents] == ["storm-1"]
