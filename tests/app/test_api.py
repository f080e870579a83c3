"""The REST interface of a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.times import parse_time
from tests.app.history import END, STORM, History
from tests.app.server import running_app


@pytest.fixture(scope="module")
def api(storm_history: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("elsewhere")
    with running_app(storm_history.config, folder) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def get(api: httpx.Client, path: str, status: int = 200, **query: Any) -> Any:
    answer = api.get(path, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def check_error(body: Any, code: str) -> None:
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "fix"}
    assert body["error"]["code"] == code


def test_health_and_readiness_answer_from_any_folder(api: httpx.Client) -> None:
    assert get(api, "/healthz") == {"status": "ok"}
    ready = get(api, "/readyz")
    assert ready["status"] == "ready"
    assert ready["newest"] == END


def test_a_database_that_is_not_there_is_not_ready_and_says_why(
    storm_history: History, tmp_path: Path
) -> None:
    missing = f"sqlite:///{tmp_path / 'absent.db'}"
    with (
        running_app(storm_history.config, tmp_path, database=missing) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        assert get(client, "/healthz") == {"status": "ok"}
        check_error(get(client, "/readyz", 503), "store_unavailable")
        check_error(get(client, "/api/v1/targets", 503), "store_unavailable")
        assert "gustfront_store_up 0.0" in client.get("/metrics").text


def test_metrics_are_readable_by_prometheus(api: httpx.Client) -> None:
    answer = api.get("/metrics")
    families = {f.name: f for f in text_string_to_metric_families(answer.text)}
    assert families["gustfront_store_up"].samples[0].value == 1
    assert sum(s.value for s in families["gustfront_targets"].samples) == 5
    assert families["gustfront_input_problems"].samples[0].value == 1
    assert families["gustfront_database_bytes"].samples[0].value > 10_000


def test_targets_are_listed_and_filtered_by_pool(api: httpx.Client) -> None:
    everything = get(api, "/api/v1/targets")["targets"]
    assert [t["replica"] for t in everything] == ["coder-0", "coder-1", "coder-2", "mixed-0", "mixed-1"]
    assert everything[0]["components"] == ["vllm"]
    assert everything[0]["last_seen"] == "2026-09-21T16:00:00Z"
    assert [t["pool"] for t in get(api, "/api/v1/targets", pool="mixed")["targets"]] == ["mixed", "mixed"]


def test_a_series_of_percentiles_has_intervals_counts_and_windows(api: httpx.Client) -> None:
    answer = get(api, "/api/v1/series", signal="ttft", start=STORM, end=END, **{"class": "coding-agent"})
    assert (answer["signal"], answer["unit"], answer["stat"]) == ("ttft_seconds", "seconds", "p99")
    (series,) = answer["series"]
    assert (series["class"], series["pool"]) == ("coding-agent", "coder")
    last = series["points"][-1]
    assert parse_time(last["t"]) == END
    assert last["state"] == "ok"
    assert 40 <= last["low"] <= last["value"] <= last["high"] <= 80
    assert last["n"] >= 300
    assert len(series["points"]) == 20


def test_other_statistics_and_steps_are_served(api: httpx.Client) -> None:
    waiting = get(api, "/api/v1/series", signal="requests_waiting", start=STORM - 600, end=END, pool="coder")
    assert waiting["stat"] == "mean"
    values = [p["value"] for p in waiting["series"][0]["points"]]
    assert values[0] == 0
    assert values[-1] == pytest.approx(20.0)  # two of three replicas wait with 30
    rate = get(
        api,
        "/api/v1/series",
        signal="request_success_total",
        step="5m",
        start=STORM - 3600,
        end=END,
        pool="coder",
    )
    assert rate["series"][0]["points"][-1]["value"] == pytest.approx(3 * 20 / 15, rel=0.01)


def test_incidents_are_listed_by_range_and_found_by_id(api: httpx.Client) -> None:
    (found,) = get(api, "/api/v1/incidents", start="2026-09-21T15:00:00Z", end="2026-09-21T16:00:00Z")[
        "incidents"
    ]
    assert found["id"] == "storm-1"
    assert found["detected_at"] == "2026-09-21T15:42:00Z"
    assert get(api, "/api/v1/incidents", open="true")["incidents"]
    one = get(api, "/api/v1/incidents/storm-1")
    assert one["log"][0]["action"] == "opened"


@pytest.mark.parametrize(
    ("path", "query", "status", "code"),
    [
        ("/api/v1/series", {}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "tftf"}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "ttft", "stat": "p42"}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "requests_waiting", "stat": "p99"}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "ttft", "step": "7"}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "ttft", "step": "90s"}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "ttft", "start": "soon"}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "ttft", "start": "20", "end": "10"}, 400, "bad_request"),
        ("/api/v1/series", {"signal": "ttft", "start": "0", "end": "1e9"}, 400, "bad_request"),
        ("/api/v1/incidents", {"open": "perhaps"}, 400, "bad_request"),
        ("/api/v1/incidents/none", {}, 404, "not_found"),
        ("/api/v1/nothing", {}, 404, "not_found"),
        ("/api/nothing", {}, 404, "not_found"),
    ],
)
def test_every_error_has_the_same_shape(
    api: httpx.Client, path: str, query: dict[str, str], status: int, code: str
) -> None:
    check_error(get(api, path, status, **query), code)


def test_a_wrong_method_has_the_same_shape(api: httpx.Client) -> None:
    answer = api.post("/api/v1/targets")
    assert answer.status_code == 405
    check_error(answer.json(), "method_not_allowed")


def test_the_screens_and_their_headers_are_on_the_same_port(api: httpx.Client) -> None:
    page = api.get("/")
    assert page.status_code == 200
    assert re.search(r"<title>", page.text)
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["x-frame-options"] == "SAMEORIGIN"
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http:" not in policy
    host = page.request.url.netloc.decode()
    assert policy.endswith(f"connect-src 'self' ws://{host} wss://{host}")
    odd = api.get("/", headers={"host": "x; script-src *"})
    assert "*" not in odd.headers.get("content-security-policy", "")
    assert api.get("/slos").status_code == 200
