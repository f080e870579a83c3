"""The Explore page: any signal, with the numbers that the other pages show, and a CSV that is safe to open."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from app.services import explore, latency
from app.services.view import View, make_view
from core.errors import ConfigError
from core.signals import SIGNALS
from sql.store import Store
from tests.app.history import END, HOSTILE, PER_TICK, TICK, History


def view_at(t: float, length: float = 3600.0, pool: str = "") -> View:
    return make_view(t + 1e6, END, length=length, as_of=t, pool=pool)


def test_a_p99_is_the_one_that_the_class_cards_show_with_interval_and_count(storm_history: History) -> None:
    view = view_at(END)
    with Store.open(storm_history.url, read_only=True) as store:
        drawn = explore.draw(store, view, "ttft", "p99", "class")
        begin = view.start - latency.LOOK_BACK
        hists = latency.load(store, "ttft_seconds", view, begin, END, 60.0)
    lines = {line.name: line for line in drawn.lines}
    assert sorted(lines) == ["batch", "chat", "coding-agent"]
    line, card = lines["coding-agent"], latency.current(hists["coding-agent"], 0.99)
    assert line.n is not None
    assert line.low is not None
    assert line.minutes is not None
    assert line.value[-1] == pytest.approx(card.q.value)
    assert line.low[-1] == pytest.approx(card.q.low)
    assert (line.n[-1], line.minutes[-1]) == (card.q.n, card.minutes)
    assert drawn.unit == "s"
    assert "never an average of percentiles" in drawn.how


def test_an_interval_without_an_upper_end_is_infinite_and_not_its_lower_end(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        drawn = explore.draw(store, view_at(END), "ttft_seconds", "p99", "class")
    for line in drawn.lines:
        assert line.low is not None
        assert line.high is not None
        known = np.isfinite(line.value)
        assert (line.high[known] > line.low[known]).all()


def test_a_counter_is_a_rate_and_a_gauge_a_mean(storm_history: History) -> None:
    view = view_at(END)
    with Store.open(storm_history.url, read_only=True) as store:
        finished = explore.draw(store, view, "request_success_total", "rate", "pool")
        running = explore.draw(store, view, "requests_running", "value", "pool")
    rate = {line.name: line.value for line in finished.lines}
    assert np.nanmedian(rate["coder"]) == pytest.approx(3 * PER_TICK / TICK)
    assert finished.unit == "requests/s"
    assert np.nanmedian({line.name: line.value for line in running.lines}["coder"]) == pytest.approx(8.0)


def test_a_form_that_a_signal_does_not_have_becomes_its_own(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        assert explore.draw(store, view_at(END), "requests_running", "p99", "pool").stat == "value"
        with pytest.raises(ConfigError, match="ttft"):
            explore.draw(store, view_at(END), "tfft_seconds", "p99", "pool")


def test_replicas_are_drawn_one_by_one(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        drawn = explore.draw(
            store, view_at(END, pool="coder"), "prefix_cache_hit_tokens_total", "rate", "replica"
        )
    last = {line.name: line.value[-1] for line in drawn.lines}
    assert last["coder / coder-0"] == pytest.approx(0.0)
    assert last["coder / coder-2"] == pytest.approx(PER_TICK * 950 / TICK)


def test_what_is_not_exported_says_where_the_flag_is_named(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        drawn = explore.draw(store, view_at(END), "spec_accept_rate", "value", "pool")
        long = explore.draw(store, view_at(END, 28 * 86400.0), "gpu_temperature_celsius", "value", "replica")
    assert drawn.lines == ()
    assert "Data health names the flag" in drawn.why_empty
    assert "shorter range" in long.why_empty


def test_only_signals_that_were_stored_are_offered(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        offered = explore.stored_signals(store)
    assert "ttft_seconds" in offered
    assert "gpu_ecc" not in offered
    assert set(offered) <= set(SIGNALS)


def test_the_csv_holds_every_point_and_runs_nothing_in_a_spreadsheet(hostile_history: History) -> None:
    with Store.open(hostile_history.url, read_only=True) as store:
        drawn = explore.draw(store, view_at(END), "ttft_seconds", "p99", "pool")
    rows = list(csv.DictReader(io.StringIO(explore.to_csv([drawn]).decode())))
    assert len(rows) == sum(len(line.t) for line in drawn.lines)
    assert {r["name"] for r in rows} == {HOSTILE, "mixed"}
    assert all(r["time"].endswith("Z") for r in rows)
    formula = explore.Line("=1+1", np.array([END]), np.array([1.0]))
    one = explore.Drawing(drawn.signal, "p99", "s", "pool", 60.0, (formula,), 1, "")
    assert "'=1+1" in explore.to_csv([one]).decode()


def test_incidents_and_events_of_the_range_lie_over_the_curves(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        over = explore.overlay(store, view_at(END))
        other = explore.overlay(store, view_at(END, pool="mixed"))
    assert [i.id for i in over.incidents] == ["storm-1"]
    assert [e.kind for e in over.events if e.kind == "deploy"] == ["deploy"]
    assert other.incidents == ()
