"""Live reading: each scrape once, outages and absences caught up, lag measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from collectors.dictionary import load_dictionary
from collectors.prometheus_live import CATCH_UP, PrometheusLive, decode_cursor, encode_cursor
from core.classes import ClassRules
from core.config_models import PrometheusSource
from core.roles import Roles
from sql.store import Store
from tests.collectors.prometheus_truth import frame_sums
from tests.collectors.scripted_server import Asked, hangs, matrix, reply, says, scripted
from tests.conftest import PrometheusStarter

T0 = 1_790_000_000
NAME = "vllm:num_preemptions_total"
HOME = {"job": "vllm", "instance": "a:1", "pool": "x"}


class Fleet:
    """One target scraped every 15 s since T0; ``now`` says up to where there are samples, ``late`` which come with a delay."""

    def __init__(self) -> None:
        self.now = float(T0)
        self.delay = 0.0

    def __call__(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        until = min(float(asked.params["time"]), self.now)
        span = float(asked.params["query"].rsplit("[", 1)[1].rstrip("ms]"))
        span = span / 1000 if "ms]" in asked.params["query"] else span
        low = float(asked.params["time"]) - span
        times = [t for t in range(T0 - 3 * 86400, T0 + 86400, 15) if low <= t <= until]
        slow = [t for t in times if t <= self.now - self.delay]
        rows = [
            {"metric": {"__name__": "up", **HOME}, "values": [[t, "1"] for t in times]},
            {
                "metric": {"__name__": NAME, **HOME},
                "values": [[t, str((t - T0) // 15 + 20000)] for t in slow],
            },
        ]
        reply(handler, 200, matrix([r for r in rows if r["values"]]))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/g.db") as s:
        yield s


def live(url: str, cursor: float | None = None, **settings: Any) -> PrometheusLive:
    given = {"selector": '{job="vllm"}', "timeout": "300ms", "name": "p", "lag": "0s"} | settings
    source = PrometheusSource(url=url, **given)
    return PrometheusLive(source, load_dictionary(), ClassRules(), Roles(), cursor=cursor)


def test_every_scrape_is_given_once_and_the_cursor_moves() -> None:
    fleet = Fleet()
    with scripted(fleet) as server:
        source = live(server.url)
        times: list[float] = []
        for step in range(10):
            fleet.now = T0 + 15 * step + 4
            result = source.poll(fleet.now)
            times += [r.t for r in result.readings]
            assert result.error is None
            assert result.cursor == fleet.now
            assert result.newest == T0 + 15 * step
            assert result.lag == 4
        source.close()
    assert times == [T0 + 15 * i for i in range(-7, 10)]


def test_the_lag_is_kept_away_from_now() -> None:
    fleet = Fleet()
    fleet.now = T0 + 60
    with scripted(fleet) as server:
        source = live(server.url, lag="30s")
        result = source.poll(fleet.now)
        source.close()
    assert result.newest == T0 + 15  # the end of the window is exclusive
    assert result.lag == 45


def test_the_first_look_takes_two_minutes() -> None:
    fleet = Fleet()
    fleet.now = T0 + 5
    with scripted(fleet) as server:
        source = live(server.url)
        assert len(source.poll(T0 + 5).readings) == 8
        source.close()


def test_an_outage_is_named_and_caught_up() -> None:
    fleet = Fleet()
    with scripted(fleet) as server:
        source = live(server.url)
        fleet.now = T0
        source.poll(T0 + 1)
        server.behave = says(503, b"")
        down = source.poll(T0 + 300)
        server.behave = hangs(lambda: server)
        began = time.monotonic()
        hung = source.poll(T0 + 600)
        assert time.monotonic() - began < 2
        server.behave = fleet
        fleet.now = T0 + 900
        after = source.poll(T0 + 901)
        source.close()
    assert [down.error.kind if down.error else "", hung.error.kind if hung.error else ""] == [
        "http_503",
        "timeout",
    ]
    assert [p.code for p in down.problems] == ["http_503"]
    assert down.readings == []
    assert down.cursor == T0 + 1
    assert down.lag == 300
    assert [r.t for r in after.readings] == [T0 + 15 * i for i in range(1, 61)]


def test_a_restarted_collector_goes_on_at_its_cursor(store: Store) -> None:
    fleet = Fleet()
    with scripted(fleet) as server:
        first = live(server.url)
        fleet.now = T0 + 1
        first.step(store, fleet.now)
        first.close()
        fleet.now = T0 + 601
        second = live(server.url, cursor=decode_cursor(store.get_cursor("live:p")))
        second.step(store, fleet.now)
        second.close()
    (counts,) = frame_sums(list(store.frames(T0 - 1000, T0 + 1000)), "preemptions_total").values()
    assert sum(counts) == 47  # from eight scrapes before to forty after


def test_after_a_long_absence_the_rest_is_left_to_back_fill() -> None:
    fleet = Fleet()
    fleet.now = T0
    with scripted(fleet) as server:
        source = live(server.url, cursor=T0 - 3 * CATCH_UP, timeout="5s")
        result = source.poll(T0)
        source.close()
    assert [p.code for p in result.problems] == ["not_caught_up"]
    assert "backfill" in result.problems[0].fix
    assert result.readings[0].t >= T0 - CATCH_UP


def test_a_server_without_new_samples_is_called_silent() -> None:
    fleet = Fleet()
    fleet.now = T0
    with scripted(fleet) as server:
        source = live(server.url)
        assert source.poll(T0 + 1).problems == []
        assert source.poll(T0 + 60).problems == []
        assert [p.code for p in source.poll(T0 + 120).problems] == ["silent"]
        source.close()


def test_a_clock_that_differs_is_named() -> None:
    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        handler.date_time_string = lambda timestamp=None: "Mon, 01 Jan 2024 00:00:00 GMT"  # type: ignore[method-assign]
        reply(handler, 200, matrix([]))

    with scripted(behave) as server:
        source = live(server.url)
        problems = source.poll(time.time()).problems
        source.close()
    assert [p.code for p in problems] == ["clock_skew"]


def test_a_cursor_survives_and_nonsense_is_none() -> None:
    assert decode_cursor(encode_cursor(12.5)) == 12.5
    assert decode_cursor(None) is None
    assert decode_cursor("[]") is None
    assert decode_cursor("x") is None


EXPOSITION = """\
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{model_name="m"}} {n}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="m"}} 3
"""


@pytest.mark.prometheus
def test_what_a_real_prometheus_scrapes_arrives_within_seconds(
    store: Store, tmp_path: Path, prometheus: PrometheusStarter
) -> None:
    count = 0

    def metrics(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        nonlocal count
        count += 7
        reply(handler, 200, EXPOSITION.format(n=count).encode(), "text/plain; version=0.0.4")

    with scripted(metrics) as engine:
        address = engine.url.removeprefix("http://")
        config = (
            "global: {scrape_interval: 300ms, scrape_timeout: 200ms}\n"
            "scrape_configs:\n"
            f"  - {{job_name: vllm, static_configs: [{{targets: ['{address}'], labels: {{pool: x}}}}]}}\n"
        )
        with prometheus(tmp_path / "tsdb", scrape_config=config) as url:
            source = live(url, every="1s", timeout="5s")
            end = time.monotonic() + 20
            readings = 0
            while readings < 12 and time.monotonic() < end:
                result = source.step(store, time.time())
                assert result.error is None
                readings += len(result.readings)
                time.sleep(0.4)
            source.close()
    assert readings >= 12
    assert result.lag is not None
    assert result.lag < 2
    (target,) = store.targets()
    assert target.target.components == ("vllm",)
    frames = list(store.frames(0, time.time() + 60))
    (counts,) = frame_sums(frames, "preemptions_total").values()
    assert sum(counts) == 7 * (readings - 1)
