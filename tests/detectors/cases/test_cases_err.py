"""Public reports about errors, starts, retries and stuck or wedged engines: each input passes through the printed numbers.

What a report does not print is named where it is chosen. Verdicts are those of the catalogue; kinds by the table of the design.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.detectors.err_fleet import Gate, Step, infos, only, play
from tests.detectors.fleet import START, Run

ONE = {"a": ("a-0",)}
PAIR = {"a": ("a-0", "a-1")}


def which(r: Run) -> str:
    """What kind of stuck requests the only incident tells."""
    return str(r.incidents[0].incident.detail["which"])


# ---------------------------------------------------------------- A7, starts


def test_ho8_the_first_prompt_after_a_start_is_slow_and_nobody_is_alarmed() -> None:
    """vllm#39790: first prompt 1,537 ms, the next 49 about 58 ms.

    Not printed: half an hour at 58 ms before the start, four requests a second; the first scrape holds the slow prompt's mean.
    """
    usual = Step(ttft=0.058)

    def say(m: float, name: str) -> Step:
        if m < 30:
            return usual
        if m < 31:
            return replace(usual, scraped=False)
        first = m < 31.25
        # One of the 50 prompts of that scrape took 1,537 ms: (1.537 + 49 x 0.058) / 50.
        return replace(usual, restart=first, ttft=(1.537 + 49 * 0.058) / 50 if first else 0.058)

    r = play(say, 45, ONE)
    assert r.kinds == []


def test_ho8_a_cold_minute_is_information_within_the_window() -> None:
    """The same where the first scrape holds nothing but the first prompt: 1,537 ms against 58 ms."""
    usual = Step(ttft=0.058)

    def say(m: float, name: str) -> Step:
        if 40 <= m < 41:
            return replace(usual, scraped=False)
        if 41 <= m < 42:
            return replace(
                usual, restart=m < 41.25, arrivals=0.07, done=0.07, tokens=14.0, ttft=1.537, running=1.0
            )
        return usual

    r = play(say, 58, ONE, first=36)
    assert r.kinds == []
    assert any("warms up" in t and "(normal 58 ms)" in t for t in infos(r, "warm_up"))
    (i,) = [t.incident for t in r.fold.tracker.tracked.values() if t.incident.kind == "warm_up"]
    assert i.state == "resolved"


def test_ho9_a_cold_cache_beside_a_warm_sibling_is_a_start_and_no_thrash() -> None:
    """Fastllm-proxy#22: restarted backend 57 queries and 0 hits, sibling 96.1 % hits."""

    def say(m: float, name: str) -> Step:
        warm = Step(hit=0.961, prompt=9500.0)
        if name != "a-0" or m < 30:
            return warm
        if m < 31:
            return replace(warm, scraped=False)
        # 57 queries in the first minute after the start, none of them a hit; then sticky sessions warm it within minutes.
        if m < 32:
            return replace(
                warm, restart=m < 31.25, arrivals=0.95, done=0.95, prompt=2280.0, hit=0.0, running=3.0
            )
        return replace(warm, hit=0.961 * min(1.0, (m - 31) / 6))

    r = play(say, 50, PAIR)
    assert r.kinds == []
    assert infos(r, "warm_up")


# ---------------------------------------------------------------- A8, retries


@pytest.mark.parametrize("status", [408, 503])
def test_ho11_rejections_that_come_back_at_once_are_a_retry_storm_under_either_status(status: int) -> None:
    """smg#2247: overload answered with 408, later with 503 and Retry-After. Retries are not demand.

    Not printed: rates. 720 answers a minute before; in the storm 500 answers and 4,000 rejections.
    """

    def say(m: float, name: str) -> Step:
        usual = Step()
        # The router rejects: engines see only what they answer and are full.
        return (
            usual
            if m < 30
            else replace(usual, arrivals=2.8, done=2.8, running=24.0, waiting=30.0, seconds=8.0)
        )

    def gate(m: float, pool: str) -> Gate:
        return Gate() if m < 30 else Gate({200: 500, status: 4000})

    r = play(say, 40, gate=gate)
    assert r.kinds == ["retry_storm"]
    i = r.incidents[0].incident
    assert "4,500 attempts a minute" in i.title
    assert any("503" in a for a in i.detail["actions"]["now"])


# ---------------------------------------------------------------- A9, B7: what never finishes


def test_ho12_a_ledger_gap_of_four_is_zombies_at_an_error_rate_of_zero() -> None:
    """ds4#3: started 81, completed 77, failed 0, in-flight never drains; first-turn queue 110 -> 224 s.

    Not printed: 81 requests over 20 minutes, each 30 s; the four stay from minutes 32, 35, 38 and 41 on.
    """

    def say(m: float, name: str) -> Step:
        stuck = sum(m >= t for t in (32, 35, 38, 41))
        rate = (77 if stuck else 81) / 1200
        # The gap is four of 81: started 81, completed 77.
        return Step(
            arrivals=81 / 1200,
            done=rate,
            seconds=30.0,
            running=81 / 1200 * 30.0 + stuck,
            waiting=float(stuck > 2) * 2,
            tokens=40.0,
            prompt=500.0,
        )

    r = play(say, 55, ONE)
    only(r, "stuck_requests", ["a-0"])
    assert which(r) == "zombies"
    held = r.incidents[0].incident.evidence[0]
    assert held.now == pytest.approx(4.0, abs=0.6)
    assert any(x.kind == "wedged" for x in r.incidents[0].incident.ruled_out)


def test_ho13_blocks_pinned_after_a_burst_of_aborts_are_no_leak() -> None:
    """vllm#29906: a batch aborted at about 20 s, KV steps up, flat for the connector's time-out (480 s), steps down.

    Not printed: sixty aborted prompts hold 60 % of the KV.
    """

    def say(m: float, name: str) -> Step:
        idle = Step(arrivals=0.0, done=0.0, tokens=0.0, prompt=0.0, running=0.0, kv=0.02)
        if m < 30:
            return Step()
        if m < 30.5:
            return replace(Step(), left=2.0, running=60.0, done=0.5, kv=0.5)
        return replace(idle, kv=0.62 if m < 38 else 0.02)

    r = play(say, 45, ONE)
    only(r, "stuck_requests", ["a-0"])
    assert which(r) == "pinned"
    i = r.incidents[0].incident
    assert i.ended_at is not None
    assert i.ended_at <= START + 38.5 * 60, "over when the connector gave the blocks back"
    assert "leak" in " ".join(x.kind for x in i.ruled_out)


def test_ho15_one_request_that_is_thrown_out_for_ever_is_a_livelock() -> None:
    """inference-sim#963: 173,622 failures of one request, 2,759 of 19,800 finish. Verdict B8.

    Not printed: over 20 minutes. The healthy half (7.4 % preempted) is a case of the memory kinds.
    """
    finished, failures = 2759 / 1200, 173_622 / 1200

    def say(m: float, name: str) -> Step:
        usual = Step(arrivals=16.5, done=16.5, seconds=0.6)
        if m < 30:
            return usual
        return replace(
            usual,
            arrivals=finished,
            done=finished,
            preempted=failures,
            kv=0.97,
            waiting=20.0,
            tokens=400.0,
            seconds=4.0,
        )

    r = play(say, 42, ONE)
    assert [i.incident.kind for i in r.incidents] == ["stuck_requests"]
    assert which(r) == "livelock"


# ---------------------------------------------------------------- C5, D: runs on, or does nothing


def test_ho41_one_answer_that_thinks_to_its_cap_is_a_runaway_and_no_hang() -> None:
    """vllm#30599: running 1, generation 158 to 181 tok/s, KV 0.3 -> 1.0 %."""

    def say(m: float, name: str) -> Step:
        if m < 30:
            return Step(
                arrivals=0.1, done=0.1, seconds=10.0, running=1.0, tokens=165.0, kv=0.003, prompt=200.0
            )
        x = min(1.0, (m - 30) / 12)
        return Step(
            arrivals=0.0, done=0.0, prompt=0.0, running=1.0, tokens=158.0 + 23.0 * x, kv=0.003 + 0.007 * x
        )

    r = play(say, 46, ONE)
    only(r, "stuck_requests", ["a-0"])
    assert which(r) in ("runaway", "zombies")
    assert r.incidents[0].incident.severity == "ticket", "nobody waits"


def test_ho43_nothing_runs_three_wait_and_no_token_flows() -> None:
    """vllm#39863: running 0, waiting 3, KV 0 %, both throughputs 0, version endpoint 200. D1."""
    dead = Step(arrivals=0, done=0, tokens=0, prompt=0, running=0.0, waiting=3.0, kv=0.0)
    r = play(lambda m, n: dead if m >= 30 else Step(), pools=ONE)
    only(r, "wedged", ["a-0"])
    assert "0 requests run and 3 wait" in r.incidents[0].incident.title


def test_ho44_an_engine_full_of_requests_that_stops_is_wedged() -> None:
    """vllm#2731: prompt 382.6, generation 118.5 tok/s, running 35, pending 115, KV 99 %; afterwards no tokens, health 200. D1."""
    last = Step(
        arrivals=0.5, done=0.5, seconds=70.0, prompt=382.6, tokens=118.5, running=35.0, waiting=115.0, kv=0.99
    )

    def say(m: float, name: str) -> Step:
        return replace(last, arrivals=0, done=0, prompt=0, tokens=0) if m >= 30 else last

    r = play(say, pools=ONE)
    only(r, "wedged", ["a-0"])
    assert "35 requests run and 115 wait" in r.incidents[0].incident.title


def test_ho45_cancelled_bursts_after_which_nothing_is_scheduled_are_a_wedge() -> None:
    """trtllm#12313: 300 prompts of 2K cancelled after 60 s, four times; 2,048 active, 0 scheduled, memory ~87 %, health 200. D2.

    Not printed: the bursts come right after one another, and work stops with the first one.
    """

    def say(m: float, name: str) -> Step:
        if m < 30:
            return Step()
        burst = min(4, int(m - 30) + 1)
        active = 2048.0 if burst == 4 else 512.0 * burst
        return Step(
            arrivals=0, done=0, tokens=0, prompt=0, running=active, kv=0.87, left=5.0 if m < 34 else 0.0
        )

    r = play(say, 40, ONE)
    only(r, "wedged", ["a-0"])


def test_ho46_a_busy_prefill_is_no_wedge_though_its_probe_fails() -> None:
    """sglang#22511: health fails at 20 s while long prefills run; prompt tokens rise. D4, no incident."""
    busy = Step(arrivals=0.0, done=0.0, tokens=0.0, prompt=9000.0, hit=0.0, running=3.0)
    calm = Step()
    r = play(lambda m, n: busy if 30 <= m < 33 else calm, pools=PAIR)
    assert "wedged" not in r.kinds


def test_ho46_a_log_line_of_an_idle_engine_is_no_incident() -> None:
    """vllm#43420: "no shared-memory block in 60 s" fires when idle: nothing runs, nothing waits. D6, no incident."""
    idle = Step(arrivals=0.0, done=0.0, tokens=0.0, prompt=0.0, running=0.0, kv=0.0)
    assert play(lambda m, n: idle if m >= 28 else Step(), pools=ONE).kinds == []
