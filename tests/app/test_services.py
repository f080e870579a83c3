"""View models against numbers worked out by hand from the small history."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.services import cards, fleet, incident_load, latency, slo_curves, slos
from app.services.bad import BadCounts, bad_rate, gateway_bad
from app.services.cards import status_of
from app.services.harm import quantile_word, within
from app.services.heat import HeatMap, heat_map, score
from app.services.incident_view import as_seen
from app.services.latency import Windowed
from app.services.measures import BY_KIND, DEFAULT_EVIDENCE, MEASURES
from app.services.rates import exact_interval, rate
from app.services.replica_load import load_curves, load_heat, rollup_curves
from app.services.replicas import Curve
from app.services.view import MAX_POINTS, View, make_view, step_for
from core.buckets import quantile
from core.config import Config, load_config
from core.kinds import KINDS
from core.signals import SIGNALS
from sql.store import Store
from tests.app.history import END, MINUTES, PER_TICK, START, STORM, VLLM, History, storm


@pytest.fixture
def view() -> View:
    return View(END - 3600, END, live=False, newest=END)


@pytest.fixture
def config(storm_history: History) -> Config:
    return load_config(storm_history.config)


# --- what a page is asked for


def test_fresh_data_is_shown_live_and_old_data_as_history() -> None:
    live = make_view(1000.0, 980.0)
    assert live.live
    assert live.as_of == 1005.0
    old = make_view(1_000_000.0, 5000.0)
    assert not old.live
    assert old.as_of >= 5000.0
    assert old.length == pytest.approx(3600, abs=15)


def test_a_chosen_time_is_history_even_when_data_is_fresh() -> None:
    assert not make_view(1000.0, 990.0, as_of=600.0).live


@given(some.floats(60, 400 * 86400))
def test_no_range_needs_more_points_than_a_chart_may_have(length: float) -> None:
    assert length / step_for(length) <= MAX_POINTS


# --- classes


def test_every_class_has_its_numbers_and_the_worst_comes_first(
    storm_store: Store, view: View, config: Config
) -> None:
    rows = slos.rows(storm_store, view, config)
    found = cards.cards(storm_store, view, config, rows, cards.degraded(storm_store, view))
    assert found[0].class_ == "coding-agent"
    by_class = {c.class_: c for c in found}
    coding, chat, batch = by_class["coding-agent"], by_class["chat"], by_class["batch"]
    assert coding.status == "missed"
    assert chat.status == "met"
    assert batch.ttft is not None
    assert coding.ttft is not None
    # half of two replicas' requests take 60 s, which lies between the edges 40 and 80
    assert 40.0 <= coding.ttft.q.low <= 80.0 <= coding.ttft.q.high
    assert coding.late is not None
    assert coding.late[0] / coding.late[2] == pytest.approx(1 / 3)
    assert chat.degraded.k == 2
    assert chat.degraded.n == 1000
    assert coding.degraded.state == "not_exported"


def test_gave_up_comes_from_the_gateway_where_there_is_a_log(storm_store: Store, view: View) -> None:
    counts = gateway_bad(storm_store, END - 600, END, view)["coding-agent"]
    assert counts.n == 200
    assert counts.gave_up == 40
    assert counts.failed == 0
    assert bad_rate(counts, None).value == pytest.approx(0.2)
    assert bad_rate(None, None).as_percent() == "not exported"
    assert bad_rate(None, BadCounts(0, 0, 0, "engine")).as_percent() == "no traffic"


def test_few_late_requests_are_not_called_a_missed_objective() -> None:
    q = Windowed(quantile([((1.0, 2.0), np.array([400, 0, 0]))], 0.99), 5.0)
    assert status_of(q, (0, 0, 400), 0.99) == "met"
    assert status_of(q, (6, 6, 400), 0.99) == "undetermined"  # 1.5 %, but 0.6 % is as likely
    assert status_of(q, (20, 20, 400), 0.99) == "missed"
    assert status_of(q, (0, 20, 400), 0.99) == "undetermined"  # the threshold lies inside a bucket
    assert status_of(None, None, 0.99) == "not_exported"


def test_a_threshold_inside_a_bucket_gives_bounds_and_on_an_edge_a_number() -> None:
    hists = {(1.0, 2.0, 4.0): np.array([[5, 3, 2, 1]])}
    on = within(hists, 2.0)
    assert (on.low[0], on.high[0], on.n[0]) == (8, 8, 11)
    off = within(hists, 3.0)
    assert (off.low[0], off.high[0]) == (8, 10)
    beyond = within(hists, 9.0)
    assert (beyond.low[0], beyond.high[0]) == (10, 11)


@given(
    some.lists(some.integers(0, 50), min_size=4, max_size=4),
    some.floats(0.1, 20.0),
)
def test_the_bounds_hold_every_place_of_the_requests_in_their_buckets(
    counts: list[int], threshold: float
) -> None:
    edges = (1.0, 2.0, 4.0)
    w = within({edges: np.array([counts])}, threshold)
    lows, highs = (0.0, *edges), (*edges, math.inf)
    surely = sum(n for n, top in zip(counts, highs, strict=True) if top <= threshold)
    maybe = sum(n for n, bottom in zip(counts, lows, strict=True) if bottom < threshold)
    assert w.low[0] == surely
    assert surely <= w.high[0] <= maybe


def test_history_uses_no_minute_that_was_not_over() -> None:
    assert latency.last_minute(View(0, 1234.0, live=False)) == 1200.0
    assert latency.last_minute(View(0, 1234.0, live=True)) == 1260.0


# --- objectives


def test_the_gateway_counts_answers_late_ones_and_those_given_up(
    storm_store: Store, view: View, config: Config
) -> None:
    row = slos.rows(storm_store, view, config)[0]
    assert row.point == "gateway"
    t = row.attainment.tally
    storm_attempts = int((END - STORM) / 3)
    assert t.bad == storm_attempts // 5
    assert t.good == int(MINUTES * 60 / 3) - t.bad
    assert row.attainment.low == row.attainment.high
    assert row.covered_minutes == MINUTES
    assert row.other is not None


def test_the_engine_leaves_an_interval_where_its_edges_miss_the_threshold(
    storm_store: Store, view: View, config: Config
) -> None:
    batch = next(r for r in slos.rows(storm_store, view, config) if r.config.name == "batch-ttft")
    assert batch.point == "engine"
    assert any("between two bucket edges" in n for n in batch.notes)
    assert batch.attainment.tally.aborts_known  # its engines export aborts


def test_the_engine_of_coding_agent_does_not_export_aborts(
    storm_store: Store, view: View, config: Config
) -> None:
    other = config.model_copy(update={"slos": [config.slos[0].model_copy(update={"point": "engine"})]})
    row = slos.rows(storm_store, view, other)[0]
    assert row.point == "engine"
    assert not row.attainment.tally.aborts_known
    assert any("not exported" in n for n in row.notes)
    ticks = int(MINUTES * 60 / 15) - 1  # the first reading of a target only sets its state
    assert row.attainment.tally.counted == pytest.approx(3 * PER_TICK * ticks, abs=3 * PER_TICK)


def test_the_p99_of_each_bucket_layout_stands_alone(storm_store: Store, view: View, config: Config) -> None:
    row = slos.rows(storm_store, view, config)[0]
    assert [x.pools for x in row.layouts] == [("coder",)]
    assert row.layouts[0].edges == VLLM


def test_curves_of_an_objective_end_where_the_view_ends(
    storm_store: Store, view: View, config: Config
) -> None:
    d = slo_curves.detail(storm_store, view, config, "chat-ttft")
    assert d.p99 is not None
    assert d.share is not None
    assert d.p99.t[-1] == END
    assert len(d.p99.t) <= MAX_POINTS
    assert np.nanmax(d.p99.value) < 1.0
    gateway = slo_curves.detail(storm_store, view, config, "coding-agent-ttft")
    assert gateway.point == "gateway"
    assert gateway.share is not None
    assert gateway.share.low[-1] == pytest.approx(0.8, abs=0.02)


# --- the fleet


def test_coverage_counts_replicas_and_names_those_not_seen(storm_store: Store, view: View) -> None:
    whole = fleet.coverage(storm_store, view)
    assert (whole.known, whole.seen, whole.complete) == (5, 5, True)
    late = View(END + 3600, END + 7200, live=False, newest=END)
    gone = fleet.coverage(storm_store, late)
    assert (gone.known, gone.seen) == (5, 0)
    assert "not seen: coder-0, coder-1, coder-2 and 2 more" in gone.text()


def test_only_the_stalled_replicas_are_dark(storm_store: Store, view: View) -> None:
    heat = load_heat(storm_store, view, MEASURES["hit_rate"])
    assert not heat.own_range
    dark = {r.replica for r in heat.rows if r.score[-1] > 0.9}
    assert dark == {"coder-0", "coder-1"}
    assert all(r.normal == pytest.approx(0.95) for r in heat.rows)
    pale = [r for r in heat.rows if r.replica not in dark]
    assert all(np.nanmax(r.score) == 0 for r in pale)


def test_rollups_per_replica_draw_the_same_curve_as_frames(storm_store: Store, view: View) -> None:
    for name in ("hit_rate", "waiting", "ttft_p99", "recomputed_per_request"):
        measure = MEASURES[name]
        begin = math.ceil(view.start / 300) * 300
        fine = load_curves(storm_store, view, [measure], begin, END, 300.0)[name]
        coarse = rollup_curves(storm_store, measure, begin, END, 300.0, ["coder", "mixed"])
        assert [c.replica for c in fine] == [c.replica for c in coarse]
        for a, b in zip(fine, coarse, strict=True):
            # ts of a roll-up is the minute that contains t1: one scrape of twenty lies in the neighbouring step
            assert np.allclose(a.value[1:], b.value[1:], rtol=0.12, atol=2.0, equal_nan=True), (
                name,
                a.value,
                b.value,
            )


@given(some.floats(0.01, 100), some.floats(0.01, 100))
def test_a_replica_at_or_better_than_its_normal_is_pale(value: float, normal: float) -> None:
    for measure in MEASURES.values():
        s = score(measure, np.array([value]), normal)[0]
        assert 0 <= s <= 1
        better = value <= normal if measure.worse >= 0 else value >= normal
        if better:
            assert s == 0


def test_a_replica_without_values_stays_a_gap() -> None:
    t = np.arange(1.0, 4.0)
    nothing = Curve("a", "p", t, np.full(3, np.nan))
    heat = heat_map(MEASURES["ttft_p99"], [nothing], [])
    assert np.isnan(heat.rows[0].score).all()


def test_every_measure_is_made_of_known_signals() -> None:
    for m in MEASURES.values():
        for s in (*m.top, *m.bottom, *m.minus):
            assert s in SIGNALS, (m.id, s)
    for kind, ids in BY_KIND.items():
        assert kind in KINDS
        assert set(ids) <= set(MEASURES)
    assert set(DEFAULT_EVIDENCE) <= set(MEASURES)


# --- incidents


def test_an_incident_is_shown_as_it_was_seen_without_hindsight() -> None:
    i = storm(ended_at=STORM + 900, state="resolved")
    assert as_seen(i, STORM + 30) is None
    early = as_seen(i, STORM + 90)
    assert early is not None
    assert early.state == "announced"
    assert early.detected_at is None
    assert len(early.evidence) == 1
    during = as_seen(i, STORM + 600)
    assert during is not None
    assert (during.state, during.ended_at) == ("open", None)
    after = as_seen(i, STORM + 1000)
    assert after is not None
    assert after.state == "resolved"
    warning = as_seen(storm(state="announced", detected_at=STORM + 60), STORM + 300)
    assert warning is not None
    assert warning.state == "announced", "it has bitten nobody yet, however long it has been told"
    odd = as_seen(storm(announced_at=STORM + 900), STORM + 300)
    assert odd is not None
    assert odd.announced_at is None  # a warning that came later is not shown


def test_sentence_charts_heat_and_counts_of_an_incident_agree(
    storm_store: Store, view: View, config: Config
) -> None:
    loaded = incident_load.load(storm_store, view, config, "storm-1")
    assert loaded is not None
    v, heat = loaded.view, loaded.heat
    assert isinstance(heat, HeatMap)
    # the red curves are the replicas named, and no others
    for chart in v.charts:
        assert {c.replica for c in chart.affected} == set(v.affected)
        assert {c.replica for c in chart.control} == set(v.control)
    assert {r.replica for r in heat.rows} == set(v.affected) | set(v.control)
    # those that the sentence counts as off are the dark rows
    dark = {r.replica for r in heat.rows if r.score[-1] >= 0.5}
    assert dark == set(v.affected)
    # the sentence's number is the class's p99, and the summary's count that of the harm table
    h = v.harm[0]
    assert h.now is not None
    assert quantile_word(h.now) in v.sentence
    assert h.late is not None
    assert f"{h.late:,} coding-agent requests late" in v.summary
    assert h.missed
    assert h.missed_since == pytest.approx(STORM, abs=60)
    # as many as the engine counted over 5 s since the onset: half of two replicas' requests
    assert h.late == pytest.approx(2 * (PER_TICK // 2) * (END - STORM) / 15, rel=0.02)
    assert v.action is not None
    assert not v.action.restart
    assert v.tenants[0][0] in ("acme", "globex")
    times = [x.at for x in v.chain if x.at is not None]
    assert times == sorted(times)


def test_the_control_group_shows_no_change(storm_store: Store, view: View, config: Config) -> None:
    loaded = incident_load.load(storm_store, view, config, "storm-1")
    assert loaded is not None
    hits = next(c for c in loaded.view.charts if c.measure.id == "hit_rate")
    assert [c.replica for c in hits.control] == ["coder-2"]
    assert np.nanmin(hits.control[0].value) == pytest.approx(0.95)
    assert np.nanmin(hits.affected[0].value) == 0


def test_an_open_incident_is_found_on_the_now_page_and_a_calm_time_has_none(
    storm_store: Store, view: View, config: Config
) -> None:
    now = incident_load.open_views(storm_store, view, config, incident_load.in_range(storm_store, view))
    assert [v.incident.id for v in now] == ["storm-1"]
    calm = View(START, STORM - 600, live=False, newest=END)
    assert incident_load.in_range(storm_store, calm) == ()


# --- rates and words


def test_rates_carry_exact_intervals() -> None:
    low, high = exact_interval(3, 10_000)
    assert low == pytest.approx(0.6187e-4, rel=1e-3)  # scipy.stats.binomtest(3, 10000).proportion_ci()
    assert high == pytest.approx(8.7645e-4, rel=1e-3)
    assert exact_interval(0, 10)[0] == 0
    assert exact_interval(10, 10)[1] == 1
    assert rate(0, 0).state == "no_traffic"
    assert rate(1, 5, min_n=100).state == "too_few"


@given(some.integers(0, 400), some.integers(1, 400))
def test_an_exact_interval_holds_the_share(k: int, n: int) -> None:
    k = min(k, n)
    low, high = exact_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1


def test_loading_the_now_page_of_a_small_fleet_takes_well_under_a_second(
    storm_store: Store, view: View, config: Config
) -> None:
    begin = time.perf_counter()
    cards.cards(storm_store, view, config, slos.rows(storm_store, view, config), {})
    assert time.perf_counter() - begin < 5.0  # generous: the machine may be busy; bench/app.py measures


def test_a_name_at_the_beginning_of_a_sentence_keeps_its_spelling() -> None:
    from app.services.wording import capital

    assert capital("all replicas carry it") == "All replicas carry it"
    assert capital("coder-a-3 takes twice as long") == "coder-a-3 takes twice as long"
    assert capital("") == ""


def test_a_few_late_requests_in_one_minute_do_not_begin_a_miss() -> None:
    from app.services.harm import Within, missed_since

    n = np.full(30, 100)
    late = np.zeros(30, np.int64)
    late[5] = 4  # one bad minute: 4 of 500
    late[20:] = 10
    t = 60.0 * np.arange(1, 31)
    since = missed_since(Within(n - late, n - late, n), t, 0.99, 0.0)
    assert since == 1200.0


def test_the_log_is_folded_in_whole_days_and_hours_without_gap_or_overlap() -> None:
    from app.services.gateway import spans

    end = END + 37 * 60
    pieces = list(spans(end - 28 * 86400, end))
    assert pieces[0][0] == end - 28 * 86400
    assert pieces[-1][1] == end
    assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    inner = pieces[1:-1]
    assert all(a % 3600 == 0 and b % 3600 == 0 for a, b, _ in inner)
    assert len(pieces) < 60
    assert all(b - a <= 3600 for a, b, fine in pieces if fine)


def test_a_window_longer_than_the_fine_part_counts_everything(storm_store: Store, config: Config) -> None:
    late = View(END + 5 * 86400, END + 5 * 86400 + 3600, live=False, newest=END)
    row = slos.rows(storm_store, late, config)[0]
    assert row.point == "gateway"
    assert row.attainment.tally.counted == int(MINUTES * 60 / 3)
    assert row.covered_minutes == MINUTES
    assert row.p99 is not None
    assert row.p99.q.state == "no_traffic"
    engine = slos.rows(storm_store, late, config)[1]
    assert engine.attainment.tally.counted > 0


def test_objectives_over_a_chosen_span_count_only_that_span(storm_store: Store, config: Config) -> None:
    calm = slos.slo_rows(storm_store, config, START, STORM)[0]
    assert calm.attainment.tally.bad == 0
    assert calm.attainment.tally.good == int((STORM - START) / 3)


def test_a_histogram_whose_last_edge_is_too_low_is_called_saturated(tmp_path: Path) -> None:
    from app.services.health import saturated
    from core.frames import Layout, Reading, Target, column

    layout = Layout((column("ttft_seconds", "histogram", (1.0, 2.0), class_="chat"),))
    target = Target("a:1", pool="p", replica="a")
    with Store.open(f"sqlite:///{tmp_path / 's.db'}") as store:
        for i in range(20):
            counts = np.array([90, 0, 10], np.int64) * i
            store.append(
                [Reading(target, START + 60.0 * i + 1, layout, np.zeros(0), counts, np.array([1.0 * i]))]
            )
        (found,) = saturated(store, View(START, START + 1200, live=False))
    assert (found.signal, found.class_, found.pool, found.edge) == ("ttft_seconds", "chat", "p", 2.0)
    assert found.share == pytest.approx(0.1)
