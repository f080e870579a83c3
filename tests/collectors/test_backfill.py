"""Back-fill: windows bounded by samples, refusals, outages, resuming, repeating."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from collectors import prometheus_reader
from collectors.backfill import BackfillResult, backfill
from collectors.dictionary import load_dictionary
from collectors.prometheus_client_guard import PrometheusClient
from core.classes import ClassRules
from core.config_models import PrometheusSource, SourceConfig
from core.errors import ConfigError, StoreError
from core.roles import Roles
from sql.store import Store
from tests.collectors.prometheus_truth import frame_sums
from tests.collectors.scripted_server import (
    Asked,
    Behaviour,
    breaks_off,
    hangs,
    in_turn,
    matrix,
    reply,
    says,
    scripted,
)
from tests.conftest import PrometheusStarter
from tests.servers import build_tsdb, find_program, victoria_server

T0 = 1_790_000_000
HOUR = 3600
NAME = "vllm:num_preemptions_total"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/g.db") as s:
        yield s


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of ten minutes of :func:`history`; no waiting between tries."""
    monkeypatch.setattr(prometheus_reader, "WANTED_SAMPLES", 80)
    monkeypatch.setattr(prometheus_reader, "WAITS", (0.01, 0.01, 0.01))


def fill(store: Store, url: str, *, end: float = T0 + HOUR, start: float = T0, **more: Any) -> BackfillResult:
    settings = {"selector": '{job="vllm"}', "timeout": "500ms", "name": "p"} | more.pop("settings", {})
    source = PrometheusSource(url=url, **settings)
    return backfill(store, source, load_dictionary(), ClassRules(), Roles(), start, end, **more)


def history(end: float = T0 + HOUR, every: int = 15) -> Behaviour:
    """A server that holds one target whose counter goes up by one each scrape; answers any window of it."""

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        until = float(asked.params["time"])
        span = asked.params["query"].rsplit("[", 1)[1].rstrip("]")
        seconds = float(span[:-2]) / 1000 if span.endswith("ms") else float(span[:-1])
        times = [t for t in range(T0, int(end), every) if until - seconds <= t <= until]
        home = {"job": "vllm", "instance": "a:1", "pool": "x"}
        rows = [
            {"metric": {"__name__": "up", **home}, "values": [[t, "1"] for t in times]},
            {"metric": {"__name__": NAME, **home}, "values": [[t, str((t - T0) // every)] for t in times]},
        ]
        reply(handler, 200, matrix([r for r in rows if r["values"]]))

    return behave


def counted(store: Store) -> int:
    """The increments stored for the counter."""
    frames = list(store.frames(T0 - HOUR, T0 + 24 * HOUR))
    return sum(sum(c) for c in frame_sums(frames, "preemptions_total").values())


WHOLE = HOUR // 15 - 1
"""What :func:`history` counts up in an hour, after its first sample."""


def test_an_hour_is_read_in_windows_that_do_not_overlap(store: Store) -> None:
    calls: list[tuple[float, float, str]] = []
    with scripted(history()) as server:
        result = fill(store, server.url, progress=lambda *a: calls.append(a))
        spans = [(float(a.params["time"]), a.params["query"]) for a in server.asked]
    assert result.complete
    assert counted(store) == WHOLE
    assert (result.samples, result.readings, result.inserted) == (480, 240, 239)
    assert result.requests == len(spans) == result.windows == len(calls)
    assert spans[0] == (T0 + 120 - 0.001, '{job="vllm"}[120s]')
    assert calls[-1][:2] == (HOUR, HOUR)
    assert "480 samples" in calls[-1][2]


def test_a_second_run_changes_nothing(store: Store) -> None:
    with scripted(history()) as server:
        first = fill(store, server.url)
        again = fill(store, server.url)
    assert (first.inserted, again.inserted) == (239, 0)
    assert again.complete
    assert counted(store) == WHOLE


def test_an_earlier_and_a_later_range_fit_together(store: Store) -> None:
    with scripted(history()) as server:
        fill(store, server.url, start=T0 + 1800)
        fill(store, server.url, end=T0 + 1800)
        fill(store, server.url)
    assert counted(store) == WHOLE


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("http_503", says(503, b"overloaded")),
        ("http_401", says(401, b"who are you")),
        ("http_400", says(400, b'{"status":"error","errorType":"bad_data","error":"parse error"}')),
        ("bad_json", says(200, b"<html>login</html>")),
        ("truncated", breaks_off(b'{"status":"succ')),
    ],
)
def test_an_outage_ends_the_run_with_a_name_and_the_next_run_goes_on(
    store: Store, kind: str, fault: Behaviour
) -> None:
    good = history()
    with scripted(in_turn(good, good, fault)) as server:
        broken = fill(store, server.url)
        server.behave = good
        asked_before = len(server.asked)
        resumed = fill(store, server.url)
        first_again = float(server.asked[asked_before].params["time"])
    assert not broken.complete
    assert broken.error is not None
    assert broken.error.kind == kind
    assert T0 < broken.done < T0 + HOUR
    assert kind in {p.code for p in store.problems()}
    assert resumed.resumed_from == broken.done
    assert first_again > broken.done
    assert resumed.complete
    assert counted(store) == WHOLE


@pytest.mark.parametrize(
    "fault", [says(503, b""), says(502, b"<html>"), says(200, b"garbage"), breaks_off(b"{")]
)
def test_a_fault_that_passes_costs_nothing(store: Store, fault: Behaviour) -> None:
    with scripted(in_turn(fault, history(), fault, fault, history())) as server:
        result = fill(store, server.url)
    assert result.complete
    assert counted(store) == WHOLE


def test_a_server_that_hangs_ends_the_run_in_bounded_time(store: Store) -> None:
    with scripted() as server:
        server.behave = hangs(lambda: server)
        result = fill(store, server.url, settings={"timeout": "100ms"})
        tries = len(server.asked)
    assert result.error is not None
    assert result.error.kind == "timeout"
    assert result.seconds < 5
    assert tries <= 8


def too_many(limit: float, then: Behaviour) -> Behaviour:
    """Refuses windows longer than ``limit`` seconds as Prometheus does."""
    body = {
        "status": "error",
        "errorType": "execution",
        "error": "query processing would load too many samples",
    }

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        if float(asked.params["query"].rsplit("[", 1)[1].rstrip("ms]")) > limit:
            reply(handler, 422, json.dumps(body).encode())
        else:
            then(handler, asked)

    return behave


def test_windows_shrink_until_the_server_takes_them(store: Store) -> None:
    with scripted(too_many(100, history())) as server:
        result = fill(store, server.url)
        refused = len(server.asked) - result.windows
    assert result.complete
    assert counted(store) == WHOLE
    assert refused < result.windows / 3


def test_a_window_refused_however_short_is_named_and_left_out(store: Store) -> None:
    with scripted(too_many(1, history())) as server:
        result = fill(store, server.url, end=T0 + 300)
    assert result.complete
    assert {p.code for p in store.problems()} == {"window_refused", "empty"}


def test_an_empty_range_is_said_to_be_empty(store: Store) -> None:
    with scripted() as server:
        result = fill(store, server.url)
    assert result.complete
    assert [p.code for p in store.problems()] == ["empty"]
    assert result.newest is None


def test_partial_data_is_asked_again_then_kept_and_told(store: Store) -> None:
    full = history()

    def partial(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        reply(handler, 200, matrix([], warnings=["store b is down"]))

    with scripted(in_turn(partial, full, partial, partial, full)) as server:
        result = fill(store, server.url)
    assert result.complete
    (problem,) = store.problems()
    assert (problem.code, problem.count) == ("partial", 1)
    assert counted(store) == WHOLE


def test_up_is_asked_for_where_the_selector_leaves_it_out(store: Store) -> None:
    home = {"job": "vllm", "instance": "a:1", "pool": "x"}
    ups = [
        {"metric": {"__name__": "up", **home}, "values": [[T0 + 15, "1"], [T0 + 30, "0"], [T0 + 45, "1"]]},
        {"metric": {"__name__": "up", **home, "instance": "other:1"}, "values": [[T0 + 15, "1"]]},
    ]
    rows = [{"metric": {"__name__": NAME, **home}, "values": [[T0 + 15, "1"], [T0 + 45, "2"]]}]

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        reply(handler, 200, matrix(ups if asked.params["query"].startswith("up{") else rows))

    with scripted(behave) as server:
        fill(store, server.url, end=T0 + 60, settings={"selector": '{__name__=~"vllm:.*"}'})
        assert 'up{job=~"vllm"}[60s]' in server.queries
    (target,) = store.targets()
    times, good = store.uptime(T0, T0 + HOUR)[target.id]
    assert dict(zip(times.tolist(), good.tolist(), strict=True))[T0 + 30] is False
    assert counted(store) == 1


def test_a_target_without_up_is_never_called_down(store: Store) -> None:
    home = {"job": "vllm", "instance": "a:1", "pool": "x"}
    rows = [{"metric": {"__name__": NAME, **home}, "values": [[T0 + 15, "1"], [T0 + 1500, "2"]]}]

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        reply(handler, 200, matrix([] if asked.params["query"].startswith("up{") else rows))

    with scripted(behave) as server:
        fill(store, server.url, end=T0 + 120)
    (target,) = store.targets()
    _, good = store.uptime(T0, T0 + HOUR)[target.id]
    assert good.all()


def test_stopping_keeps_what_was_read(store: Store) -> None:
    stop = threading.Event()
    seen = itertools.count(1)

    def progress(done: float, total: float, message: str) -> None:
        if next(seen) == 2:
            stop.set()

    with scripted(too_many(200, history())) as server:
        result = fill(store, server.url, stop=stop, progress=progress)
        again = fill(store, server.url)
    assert not result.complete
    assert result.error is None
    assert again.resumed_from == result.done
    assert counted(store) == WHOLE


def test_a_database_that_goes_away_stops_the_run_and_loses_nothing(store: Store) -> None:
    calls = itertools.count(1)

    class Failing:
        """The store, away at the third write."""

        def append(self, readings: Any, **more: Any) -> Any:
            if next(calls) == 3:
                raise StoreError("the disk is full")
            return store.append(readings, **more)

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    with scripted(too_many(200, history())) as server:
        with pytest.raises(StoreError):
            fill(Failing(), server.url)  # type: ignore[arg-type]
        assert fill(store, server.url).complete
    assert counted(store) == WHOLE


def test_a_range_that_ends_before_it_starts_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="--end"):
        fill(store, "http://127.0.0.1:1", start=T0, end=T0)


def test_an_entry_of_sources_will_do_as_well(store: Store) -> None:
    with scripted(history()) as server:
        source = SourceConfig.model_validate({"prometheus": {"url": server.url, "selector": '{job="vllm"}'}})
        result = backfill(store, source, load_dictionary(), ClassRules(), Roles(), T0, T0 + HOUR)
    assert result.source == source.name
    assert result.complete


# ---- a real Prometheus


def lines(restart_at: int, gap: range) -> Iterator[str]:
    """Two targets for 20 minutes: ``a`` restarts, its process silent in ``gap``; ``b`` goes on."""
    for i in range(80):
        t = T0 + 15 * i
        yield f'up{{job="vllm",instance="a:1",pool="x"}} {int(i not in gap)} {t}'
        yield f'up{{job="vllm",instance="b:1",pool="x"}} 1 {t}'
        yield f'{NAME}{{job="vllm",instance="b:1",pool="x"}} {2 * i} {t}'
        if i not in gap:
            since = i - restart_at if i >= restart_at else i + 100
            start = t - 15 * since - 1
            yield f'{NAME}{{job="vllm",instance="a:1",pool="x"}} {since} {t}'
            yield f'process_start_time_seconds{{job="vllm",instance="a:1",pool="x"}} {start} {t}'


@pytest.mark.prometheus
@pytest.mark.parametrize("limit", [50_000_000, 40])
def test_a_restart_and_a_gap_in_a_real_prometheus(
    store: Store, tmp_path: Path, prometheus: PrometheusStarter, limit: int
) -> None:
    """With a limit of 40 samples a query the server answers 422 to most windows."""
    tsdb = build_tsdb(lines(40, range(36, 40)), tmp_path / "tsdb")
    with prometheus(tsdb, options=[f"--query.max-samples={limit}"]) as url:
        result = fill(store, url, end=T0 + 1200, settings={"timeout": "10s"})
    assert result.complete
    assert result.down == 4
    # a: 100 to 135, then a new process from 0 to 39; b: 0 to 158
    assert counted(store) == 35 + 39 + 158
    assert result.restarts == 1
    (a,) = [t for t in store.targets() if t.target.address == "a:1"]
    times, good = store.uptime(T0, T0 + HOUR)[a.id]
    assert [t for t, g in zip(times.tolist(), good.tolist(), strict=True) if not g] == [
        T0 + 15 * i for i in range(36, 40)
    ]


@pytest.mark.prometheus
def test_a_prometheus_that_is_killed_and_started_again(
    store: Store, tmp_path: Path, prometheus: PrometheusStarter
) -> None:
    tsdb = build_tsdb(lines(40, range(36, 40)), tmp_path / "tsdb")
    with prometheus(tsdb) as url:
        half = fill(store, url, end=T0 + 600)
    away = fill(store, url, end=T0 + 1200)
    with prometheus(tsdb) as url:
        whole = fill(store, url, end=T0 + 1200)
    assert half.complete
    assert away.error is not None
    assert away.error.kind == "refused"
    assert whole.complete
    assert counted(store) == 35 + 39 + 158


@pytest.mark.prometheus
def test_without_a_selector_only_jobs_that_run_an_engine_are_read(
    store: Store, tmp_path: Path, prometheus: PrometheusStarter
) -> None:
    noise = [
        f'{name}{{job="{job}",instance="n:1"}} {i} {T0 + 15 * i}'
        for i in range(80)
        for name, job in (
            ("node_load1", "node"),
            ("http_requests_total", "shop"),
            ("up", "node"),
            ("up", "shop"),
        )
    ]
    tsdb = build_tsdb([*lines(40, range(36, 40)), *noise], tmp_path / "tsdb")
    with prometheus(tsdb) as url:
        result = fill(store, url, end=T0 + 1200, settings={"selector": '{__name__!=""}', "timeout": "10s"})
    assert result.complete
    assert {t.target.job for t in store.targets()} == {"vllm"}
    assert result.samples == 80 * 3 + 76 * 2
    assert counted(store) == 35 + 39 + 158


def test_a_server_that_cannot_list_names_is_asked_for_everything(store: Store) -> None:
    full = history()

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        if asked.path.startswith("/api/v1/label"):
            reply(handler, 404, b"not here")
        else:
            full(handler, asked)

    with scripted(behave) as server:
        result = fill(store, server.url, settings={"selector": '{__name__!=""}'})
        assert server.queries[0].startswith('{__name__!=""}[')
    assert result.complete
    assert counted(store) == WHOLE


def test_victoriametrics_gives_the_same_counts(store: Store, tmp_path: Path) -> None:
    if find_program("victoria-metrics") is None:
        pytest.skip("victoria-metrics is not installed")
    body = "\n".join(line + "000" for line in lines(40, range(36, 40))).encode()
    with victoria_server(tmp_path) as url:
        post = urllib.request.Request(f"{url}/api/v1/import/prometheus", data=body, method="POST")
        urllib.request.urlopen(post).close()
        with PrometheusClient(PrometheusSource(url=url)) as client:
            end = time.monotonic() + 20  # what was just written shows after seconds
            while time.monotonic() < end and client.samples("{job=~'.+'}", T0, T0 + 1200).samples < 392:
                time.sleep(0.2)
            assert client.version() == ""
        result = fill(store, url, end=T0 + 1200, settings={"selector": '{__name__!=""}', "timeout": "10s"})
    assert result.complete
    assert (result.restarts, result.down) == (1, 4)
    assert counted(store) == 35 + 39 + 158
