"""What was odd in a window: the stalled pool is named with its numbers, quiet windows are empty, little past says so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.services.odd import FALSE_SHARE, odd
from app.services.odd_series import series_of
from bench.histories import history
from core.frames import Frame, Layout, column
from sql.store import Store
from tests.app.history import END, START, STORM, History

LONG = 600.0


def test_the_stalled_replicas_head_the_list_with_their_numbers_before_and_now(storm_store: Store) -> None:
    report = odd(storm_store, STORM, STORM + LONG)
    assert report.tested > 50
    assert report.past_seconds >= 6 * LONG
    rows = {(r.signal, r.what): r for r in report.rows}
    assert {r.pool for r in report.rows} == {"coder"}
    waiting = rows[("requests_waiting", "")]
    assert set(waiting.replicas) == {"coder-0", "coder-1"}
    assert waiting.tested == 3
    assert waiting.before == 0.0
    # 40 scrapes of 30 waiting; the one at the very start still belongs to the time before.
    assert waiting.now == pytest.approx(30.0, abs=1.0)
    assert waiting.since == STORM
    hits = rows[("hit_rate", "")]
    assert (hits.before, hits.direction) == (pytest.approx(0.95), "down")
    assert hits.now < 0.05
    late = rows[("ttft_seconds", "tail")]
    assert late.now == pytest.approx(0.5, abs=0.03)
    assert {r.q <= FALSE_SHARE for r in report.rows} == {True}
    assert [r.strength for r in report.rows] == sorted((r.strength for r in report.rows), reverse=True)


def test_before_the_stall_nothing_is_odd(storm_store: Store) -> None:
    for start in (START + 4000.0, STORM - LONG):
        report = odd(storm_store, start, start + LONG)
        assert report.tested > 50
        assert report.rows == ()


def test_pool_and_class_limit_what_is_tested(storm_store: Store) -> None:
    every = odd(storm_store, STORM, STORM + LONG)
    mixed = odd(storm_store, STORM, STORM + LONG, pool="mixed")
    assert mixed.rows == ()
    assert 0 < mixed.tested < every.tested
    chat = odd(storm_store, STORM, STORM + LONG, pool="mixed", class_="chat")
    assert 0 < chat.tested < mixed.tested


def test_too_little_past_and_no_data_are_said(storm_store: Store) -> None:
    assert "needs 6 windows" in odd(storm_store, START + 900.0, START + 1500.0).why_empty
    assert "no data" in odd(storm_store, STORM, STORM + LONG, pool="none").why_empty
    with pytest.raises(ValueError, match="not after"):
        odd(storm_store, STORM, STORM)


def test_the_command_prints_json_alone_and_words_for_people(
    storm_history: History, configured: pytest.MonkeyPatch
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    span = ["--start", str(STORM), "--end", str(STORM + LONG)]
    done = CliRunner().invoke(cli, ["odd", *span, "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["rows"][0]["pool"] == "coder"
    assert {"class", "signal", "before", "now", "q", "replicas"} <= set(found["rows"][0])
    quiet = CliRunner().invoke(cli, ["odd", "--start", str(STORM - LONG), "--end", str(STORM), "--json"])
    assert json.loads(quiet.stdout)["rows"] == []
    wrong = CliRunner().invoke(cli, ["odd", "--start", str(END), "--end", str(START)])
    assert wrong.exit_code == 2


def test_gaps_and_lost_counts_are_no_zeros_and_processes_of_a_replica_add_up() -> None:
    layout = Layout((column("preemptions_total", "counter"), column("requests_waiting", "gauge")))

    def frame(target: int, t: float, count: int, gauge: float) -> Frame:
        return Frame(target, t - 15.0, t, layout, np.array([gauge]), np.array([count]), np.zeros(0))

    frames = [
        frame(1, 10.0, 30, 4.0), frame(2, 10.0, 15, 8.0),
        frame(1, 70.0, -1, np.nan), frame(2, 70.0, -1, np.nan),
    ]  # fmt: skip
    found = series_of(frames, {1: ("p", "r"), 2: ("p", "r")}, np.array([0.0, 60.0, 120.0, 180.0]), 2)
    values = {k.signal: v for k, v in found.values.items()}
    np.testing.assert_allclose(values["preemptions_total"], [3.0, np.nan, np.nan])
    np.testing.assert_allclose(values["requests_waiting"], [6.0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slow_replica", {"gpu_sm_clock_hz", "inter_token_latency_seconds"}),
        ("storm_load", {"hit_rate", "recomputed_per_request", "ttft_seconds"}),
    ],
)
def test_in_a_simulated_fault_the_signals_of_its_cause_are_among_the_first_rows(
    name: str, expected: set[str]
) -> None:
    one = history(name, 1)
    fault = one.truth["incidents"][0]
    # Five minutes that begin when it has bitten; the past is what came before.
    start = float((fault["ttft_impact"] or [fault["start"] + 120.0])[0]) // 60 * 60
    with Store.open(one.config.database, read_only=True) as store:
        rows = odd(store, start, start + 300.0).rows
    assert expected & {r.signal for r in rows[:6]}
    assert rows[0].pool == fault["pool"]
    assert set(rows[0].replicas) & set(fault["replicas"])


def test_a_fleet_too_large_to_read_whole_is_read_in_the_same_minutes_of_every_block(
    storm_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = odd(storm_store, STORM, STORM + LONG)
    monkeypatch.setattr("app.services.odd.FRAMES", 700)
    part = odd(storm_store, STORM, STORM + LONG)
    assert part.tested == whole.tested
    assert {"requests_waiting", "hit_rate"} <= {r.signal for r in part.rows}
    assert {r.pool for r in part.rows} == {"coder"}


def test_the_beginning_of_a_fault_before_the_window_is_not_taken_for_normal(storm_store: Store) -> None:
    late = odd(storm_store, STORM + LONG, STORM + 2 * LONG)
    assert {"requests_waiting", "hit_rate"} <= {r.signal for r in late.rows}
