"""Acting on incidents over REST, against a real server."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from core.incidents import iso
from sql.store import Store
from tests.app import history
from tests.app.history import STORM
from tests.app.server import running_app

ONE = "/api/v1/incidents/storm-1"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server on a history with one open incident and forty that are over."""
    folder = tmp_path_factory.mktemp("acting")
    made = history.make(folder)
    with Store.open(made.url) as store:
        store.save_incidents(
            history.storm(
                id=f"old-{n:02}",
                state="resolved",
                started_at=STORM - 86400 - n // 2,
                ended_at=STORM - 86000,
                severity="ticket" if n % 2 else "page",
            )
            for n in range(40)
        )
    with running_app(made.config, folder) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def get(api: httpx.Client, path: str, status: int = 200, **query: Any) -> Any:
    answer = api.get(path, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def post(api: httpx.Client, path: str, body: dict[str, Any] | None = None, status: int = 200) -> Any:
    answer = api.post(path, json=body or {})
    assert answer.status_code == status, answer.text
    return answer.json()


def refused(body: Any, code: str, *words: str) -> None:
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "fix"}
    assert body["error"]["code"] == code
    for word in words:
        assert word in body["error"]["message"]


def test_the_list_is_given_in_pages_without_doubles_or_gaps_the_newest_first(api: httpx.Client) -> None:
    seen: list[str] = []
    starts: list[str] = []
    cursor: dict[str, Any] = {}
    for _ in range(20):
        page = get(api, "/api/v1/incidents", limit=7, **cursor)
        seen += [i["id"] for i in page["incidents"]]
        starts += [i["started_at"] for i in page["incidents"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert len(seen) == len(set(seen)) == 41
    assert starts == sorted(starts, reverse=True)
    assert seen[0] == "storm-1"


def test_filters_narrow_the_list_and_unknown_ones_are_refused_by_name(api: httpx.Client) -> None:
    def ids(**query: Any) -> list[str]:
        return [i["id"] for i in get(api, "/api/v1/incidents", limit=1000, **query)["incidents"]]

    assert ids(open="true") == ["storm-1"]
    assert len(ids(severity="ticket")) == 20
    assert len(ids(severity=["ticket", "page"])) == 41
    assert ids(pool="mixed") == []
    assert len(ids(pool="coder", kind="kv_eviction_storm")) == 41
    assert ids(**{"class": "chat"}) == []
    assert ids(owner="nobody-at-all") == []
    refused(get(api, "/api/v1/incidents", 400, color="red"), "bad_request", "color")
    refused(get(api, "/api/v1/incidents", 400, cursor="made-up"), "bad_request", "cursor")
    refused(get(api, "/api/v1/incidents", 400, limit="0"), "bad_request", "limit")
    refused(get(api, "/api/v1/incidents", 400, acknowledged="maybe"), "bad_request", "acknowledged")


def test_an_incident_is_acknowledged_assigned_noted_and_labelled(api: httpx.Client) -> None:
    told = post(api, f"{ONE}/acknowledge", {"text": "on it"})
    assert told["handling"]["acknowledged_by"] == "local"
    assert get(api, "/api/v1/incidents", acknowledged="true")["incidents"][0]["id"] == "storm-1"
    post(api, f"{ONE}/assign", {"to": "inference"})
    post(api, f"{ONE}/note", {"text": "drained coder-0"})
    post(api, f"{ONE}/label", {"label": "cause_wrong", "kind": "wedged"})
    told = get(api, ONE)
    assert (told["handling"]["assignee"], told["handling"]["label"], told["handling"]["true_kind"]) == (
        "inference",
        "cause_wrong",
        "wedged",
    )
    log = get(api, f"{ONE}/log")["log"]
    assert [e["action"] for e in log] == ["opened", "acknowledged", "assigned", "note", "cause_wrong"]
    assert log == told["log"]
    assert [e["who"] for e in log[1:]] == ["local"] * 4
    assert [i["id"] for i in get(api, "/api/v1/incidents", owner="inference")["incidents"]] == ["storm-1"]
    post(api, f"{ONE}/unacknowledge")
    refused(post(api, f"{ONE}/unacknowledge", status=409), "conflict", "nobody")


def test_what_cannot_be_done_is_refused_with_its_reason_and_status(api: httpx.Client) -> None:
    refused(post(api, "/api/v1/incidents/nothing/acknowledge", status=404), "not_found", "nothing")
    refused(post(api, "/api/v1/incidents/old-0/acknowledge", status=400), "bad_request", "several")
    refused(post(api, f"{ONE}/note", {"text": ""}, 400), "bad_request", "text")
    refused(post(api, f"{ONE}/note", {"text": "a", "txt": "b"}, 400), "bad_request", "txt")
    refused(post(api, f"{ONE}/snooze", {"duration": "5"}, 400), "bad_request", "duration")
    refused(post(api, f"{ONE}/reopen", status=409), "conflict", "open")
    refused(post(api, f"{ONE}/merge", {"into": "storm-1"}, 409), "conflict")
    answer = api.post(f"{ONE}/acknowledge", content="text=a", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert api.get(f"{ONE}/acknowledge").status_code == 405
    assert api.post(f"{ONE}/explode", json={}).status_code == 404


def test_snoozing_merging_splitting_and_opening_again(api: httpx.Client) -> None:
    told = post(api, f"{ONE}/snooze", {"duration": "2h", "reason": "known"})
    assert (told["handling"]["told"], told["handling"]["not_told_by"]) == (False, "snoozed")
    assert post(api, f"{ONE}/wake")["handling"]["told"]
    assert post(api, "/api/v1/incidents/old-04/reopen", {"reason": "still slow"})["state"] == "open"
    whole = post(api, "/api/v1/incidents/old-04/merge", {"into": "storm-1"})
    assert (whole["id"], whole["handling"]["merged"]) == ("storm-1", ["old-04"])
    assert get(api, "/api/v1/incidents/old-04")["handling"]["not_told_by"] == "merged"
    assert post(api, "/api/v1/incidents/old-04/split")["handling"]["merged_into"] is None
    assert post(api, "/api/v1/incidents/old-04/resolve")["state"] == "resolved"


def test_a_silence_is_made_listed_found_and_taken_back(api: httpx.Client) -> None:
    body = {"matchers": 'pool="coder"', "duration": "1h", "reason": "load test"}
    made = post(api, "/api/v1/silences", body, 201)
    assert made["state"] == "active"
    assert get(api, f"/api/v1/silences/{made['id']}") == made
    assert [s["id"] for s in get(api, "/api/v1/silences")["silences"]] == [made["id"]]
    h = get(api, ONE)["handling"]
    assert (h["not_told_by"], h["until"]) == ("silenced", made["ends_at"])
    assert "load test" in h["why"]
    back = api.delete(f"/api/v1/silences/{made['id']}")
    assert back.json()["state"] == "withdrawn"
    assert api.delete(f"/api/v1/silences/{made['id']}").status_code == 404
    assert get(api, "/api/v1/silences")["silences"] == []
    assert len(get(api, "/api/v1/silences", all="true")["silences"]) == 1
    assert get(api, ONE)["handling"]["told"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"matchers": 'pool=~"("'}, "pool"),
        ({"matchers": 'colour="red"'}, "colour"),
        ({"matchers": 'kind=~".*"'}, "every incident"),
        ({"duration": None}, "duration"),
        ({"ends_at": "2020-01-01"}, "duration"),
        ({"duration": "0s"}, "end"),
        ({"reason": ""}, "reason"),
        ({"author": "somebody else"}, "author"),
    ],
)
def test_a_broken_silence_is_refused_by_name(api: httpx.Client, change: dict[str, Any], named: str) -> None:
    body = {"matchers": 'pool="coder"', "duration": "1h", "reason": "r", **change}
    refused(post(api, "/api/v1/silences", body, 400), "bad_request", named)
    assert get(api, "/api/v1/silences")["silences"] == []


def test_a_mute_window_is_made_listed_and_taken_back(api: httpx.Client) -> None:
    body = {
        "matchers": 'class="batch"', "reason": "nightly", "start": "22:00", "end": "06:00", "zone": "Europe/Berlin",
    }  # fmt: skip
    made = post(api, "/api/v1/mutes", body, 201)
    assert len(made["days"]) == 7
    assert [m["id"] for m in get(api, "/api/v1/mutes")["mutes"]] == [made["id"]]
    refused(post(api, "/api/v1/mutes", {**body, "zone": "Mars"}, 400), "bad_request", "zone")
    assert api.delete(f"/api/v1/mutes/{made['id']}").status_code == 200
    assert get(api, "/api/v1/mutes")["mutes"] == []


def test_similar_ones_and_the_post_mortem(api: httpx.Client) -> None:
    found = get(api, f"{ONE}/similar", limit=3)["similar"]
    assert len(found) == 3
    assert "same kind" in found[0]["why"]
    answer = api.get(f"{ONE}/postmortem")
    assert answer.headers["content-type"].startswith("text/markdown")
    assert "postmortem-storm-1.md" in answer.headers["content-disposition"]
    assert f"<{api.base_url}/incident?id=storm-1>".replace("//incident", "/incident") in answer.text
    assert "](data:image/svg+xml;base64," in answer.text
    packed = zipfile.ZipFile(io.BytesIO(api.get(f"{ONE}/postmortem", params={"format": "zip"}).content))
    text = packed.read("postmortem-storm-1/postmortem.md").decode()
    shown = re.findall(r"\]\(([\w-]+\.svg)\)", text)
    assert shown
    assert {f"postmortem-storm-1/{name}" for name in shown} == set(packed.namelist()) - {
        "postmortem-storm-1/postmortem.md"
    }
    refused(get(api, f"{ONE}/postmortem", 400, format="pdf"), "bad_request", "format")


def test_every_act_of_a_person_stands_in_the_audit_log(api: httpx.Client) -> None:
    post(api, "/api/v1/incidents/old-08/acknowledge")
    rows = get(api, "/api/v1/audit", limit=1000)["audit"]
    assert ("acknowledge", "old-08", "local") in {(r["action"], r["subject"], r["who"]) for r in rows}


def test_many_at_once_leave_one_acknowledgement(api: httpx.Client) -> None:
    def go(_: int) -> int:
        return api.post("/api/v1/incidents/old-10/acknowledge", json={}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(go, range(8))) == {200}
    assert [e["action"] for e in get(api, "/api/v1/incidents/old-10/log")["log"]] == ["acknowledged"]


def test_answers_have_the_described_shape(api: httpx.Client) -> None:
    document = get(api, "/api/v1/openapi.json")
    schemas = document["components"]["schemas"]
    told = get(api, ONE)
    assert set(told) == set(schemas["Incident"]["properties"])
    assert set(told["handling"]) == set(schemas["Handling"]["properties"])
    assert set(told["log"][0]) == set(schemas["LogEntry"]["properties"])
    assert set(get(api, f"{ONE}/similar")["similar"][0]) == set(schemas["SimilarIncident"]["properties"])
    made = post(api, "/api/v1/silences", {"matchers": 'pool="x"', "duration": "1h", "reason": "r"}, 201)
    assert set(made) == set(schemas["Silence"]["properties"])
    api.delete(f"/api/v1/silences/{made['id']}")
    assert told["started_at"] == iso(STORM)
    for path in (
        "/api/v1/incidents/{id}/acknowledge",
        "/api/v1/silences",
        "/api/v1/incidents/{id}/postmortem",
    ):
        assert path in document["paths"]
