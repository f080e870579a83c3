"""Deploys and other events over HTTP, at a real server: one line of curl, forms, webhooks with signatures, twice is once."""

from __future__ import annotations

import hmac
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.services.hooks import SENDERS, Context, Taken
from core.errors import InputError
from core.records import Event
from sql.store import Store
from tests.app.server import running_app
from tests.delivery.receiver import Answer, Receiver
from tests.delivery.receiver import receiver as loopback
from tests.delivery.world import incident

SECRET = "a-secret-of-github"


@pytest.fixture(scope="module")
def bot() -> Iterator[Receiver]:
    with loopback() as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bot: Receiver) -> Path:
    made = tmp_path_factory.mktemp("events")
    (made / "github").write_text(SECRET)
    (made / "key").write_text("the key of the bot")
    (made / "gustfront.yaml").write_text(
        f"""
database: sqlite:///./g.db
webhooks: {{github_secret_file: github, max_body: 20000}}
receivers:
  - name: bot
    webhook: {{url: "{bot.url}/secret-path", secret_file: key}}
  - name: closed
    webhook: {{url: "http://127.0.0.1:9/"}}
"""
    )
    with Store.open(f"sqlite:///{made / 'g.db'}") as store:
        store.save_incident(incident("i-1", time.time()))
    return made


@pytest.fixture(scope="module")
def api(folder: Path) -> Iterator[httpx.Client]:
    with (
        running_app(folder / "gustfront.yaml", folder) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client


def stored(folder: Path, source: str) -> list[Event]:
    with Store.open(f"sqlite:///{folder / 'g.db'}", read_only=True) as store:
        return [e for e in store.events() if e.source == source]


def check_error(answer: httpx.Response, status: int, code: str) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "fix"}
    assert error["code"] == code
    return dict(error)


def test_one_line_of_curl_marks_a_deploy(api: httpx.Client, folder: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    line = [curl, "-sS", "-d", "kind=deploy", "-d", "text=v1.4.2", "-d", "pool=coder-a"]
    done = subprocess.run(
        [*line, f"{api.base_url}/api/v1/events"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"received": 1, "stored": 1, "already_there": 0}
    (event,) = [e for e in stored(folder, "api") if e.text == "v1.4.2"]
    assert (event.kind, event.pool) == ("deploy", "coder-a")
    assert abs(event.ts - time.time()) < 60


def test_events_as_json_with_time_and_id_are_stored_once(api: httpx.Client, folder: Path) -> None:
    body = {"kind": "flag", "text": "speculative decoding on", "at": "2026-09-21T10:00:00Z", "id": "flag-7"}
    assert api.post("/api/v1/events?pool=chat", json=body).json()["stored"] == 1
    again = api.post("/api/v1/events?pool=chat", json={**body, "text": "the same, told otherwise"})
    assert again.json() == {"received": 1, "stored": 0, "already_there": 1}
    many = [{"kind": "scale", "text": f"to {n}", "at": 1_790_000_000 + n} for n in range(3)]
    first = api.post("/api/v1/events", json={"events": many}, headers={"Idempotency-Key": "k-1"})
    twice = api.post("/api/v1/events", json={"events": many}, headers={"Idempotency-Key": "k-1"})
    assert (first.json()["stored"], twice.json()["already_there"]) == (3, 3)
    (event,) = [e for e in stored(folder, "api") if e.kind == "flag"]
    assert (event.ts, event.pool) == (1_789_984_800.0, "chat")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": "explosion"}, "event.kind: is not known: explosion"),
        ({"kind": "deploy", "when": 1}, "event: has an unknown field when"),
        ({"kind": "deploy", "at": "soon"}, "event.at: is no time: soon"),
        ({"kind": "deploy", "at": 1e30}, "event.at: lies outside what can be"),
        ({"kind": "deploy", "text": {"a": 1}}, "event.text: is no text"),
        ({"kind": "note"}, "event.text: is missing"),
        ([{"kind": "deploy"}, 3], "events[1]: is no object"),
        ({"kind": "new_normal", "text": "x"}, "event.kind: is not known: new_normal"),
    ],
)
def test_a_bad_event_is_a_clear_400_and_stores_nothing(
    api: httpx.Client, folder: Path, body: Any, words: str
) -> None:
    before = len(stored(folder, "api"))
    error = check_error(api.post("/api/v1/events", json=body), 400, "bad_request")
    assert error["message"] == words
    assert error["fix"]
    assert len(stored(folder, "api")) == before


def test_bodies_of_another_kind_are_refused(api: httpx.Client) -> None:
    kind = {"content-type": "application/json"}
    check_error(api.post("/api/v1/events", content=b"{", headers=kind), 400, "not_json")
    check_error(api.post("/api/v1/events", content=b"x" * 30000, headers=kind), 413, "too_long")
    check_error(
        api.post("/api/v1/events", content=b"a", headers={"content-type": "text/xml"}),
        415,
        "bad_content_type",
    )
    form = {"content-type": "application/x-www-form-urlencoded"}
    check_error(
        api.post("/api/v1/events", content=b"kind=deploy&kind=note", headers=form), 400, "bad_request"
    )
    check_error(api.post("/api/v1/events", content=b"\xff=\xff%", headers=form), 400, "not_a_form")
    check_error(api.get("/api/v1/events"), 405, "method_not_allowed")


def test_a_web_page_of_another_origin_marks_nothing(api: httpx.Client, folder: Path) -> None:
    before = len(stored(folder, "api"))
    evil = {"origin": "https://evil.example"}
    answer = api.post("/api/v1/events", data={"kind": "deploy", "text": "evil"}, headers=evil)
    check_error(answer, 403, "foreign_origin")
    assert len(stored(folder, "api")) == before


def github(api: httpx.Client, event: str, body: Any, secret: str = SECRET, **headers: str) -> httpx.Response:
    raw = json.dumps(body).encode()
    signature = "sha256=" + hmac.new(secret.encode(), raw, sha256).hexdigest()
    given = {
        "content-type": "application/json",
        "x-github-event": event,
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "x-hub-signature-256": signature,
        **headers,
    }
    return api.post("/api/v1/webhooks/github", content=raw, headers=given)


DEPLOYED = {
    "deployment_status": {"state": "success", "updated_at": "2026-09-21T10:05:00Z"},
    "deployment": {"sha": "0f1e2d3c4b5a", "environment": "production", "payload": {"pool": "coder-a"}},
    "repository": {"full_name": "acme/serving"},
}


def test_a_signed_deployment_of_github_is_a_deploy_and_its_redelivery_is_none(
    api: httpx.Client, folder: Path
) -> None:
    assert github(api, "deployment_status", DEPLOYED).json()["stored"] == 1
    assert github(api, "deployment_status", DEPLOYED).json()["already_there"] == 1
    (event,) = stored(folder, "github")
    assert (event.kind, event.text, event.ts) == (
        "deploy",
        "acme/serving 0f1e2d3 deployed to production",
        1_789_985_100.0,
    )
    assert event.data["revision"] == "0f1e2d3c4b5a"
    assert github(api, "ping", {"zen": "x"}).json() == {
        "received": 0, "stored": 0, "already_there": 0, "ignored": "ping"
    }  # fmt: skip


def test_what_github_did_not_sign_is_refused(api: httpx.Client, folder: Path) -> None:
    before = len(stored(folder, "github"))
    new = {"x-github-delivery": "another"}
    wrong = github(api, "deployment_status", DEPLOYED, "a wrong secret", **new)
    assert check_error(wrong, 401, "bad_signature")["message"].endswith("is not right")
    missing = api.post("/api/v1/webhooks/github", json=DEPLOYED)
    assert check_error(missing, 401, "bad_signature")["message"].endswith("is missing")
    raw = [(b"content-type", b"application/json"), (b"x-hub-signature-256", b"sha256=\xe9")]
    check_error(api.post("/api/v1/webhooks/github", content=b"{}", headers=raw), 401, "bad_signature")
    assert len(stored(folder, "github")) == before


def test_github_is_taken_from_elsewhere_and_through_a_proxy_by_its_signature_alone(api: httpx.Client) -> None:
    via = {"x-forwarded-for": "140.82.115.1", "x-github-delivery": "from-afar"}
    assert github(api, "deployment_status", DEPLOYED, **via).json()["stored"] == 1
    check_error(github(api, "deployment_status", DEPLOYED, "wrong", **via), 401, "bad_signature")
    assert api.post("/api/v1/events", json={"kind": "deploy"}, headers=via).status_code in (401, 403)


APPLICATION = {
    "app": {
        "kind": "Application",
        "metadata": {"name": "chat"},
        "status": {
            "operationState": {
                "phase": "Succeeded",
                "finishedAt": "2026-09-21T10:00:00Z",
                "syncResult": {"revision": "abcdef123456"},
            }
        },
    }
}
ROLLED = {
    "kind": "Deployment",
    "metadata": {"name": "chat-a", "uid": "u-1", "generation": 4, "labels": {"pool": "chat-a"}},
    "spec": {"template": {"spec": {"containers": [{"image": "registry.internal/vllm:0.12.1"}]}}},
    "status": {
        "replicas": 3,
        "updatedReplicas": 3,
        "conditions": [{"reason": "NewReplicaSetAvailable", "lastUpdateTime": "2026-09-21T10:01:00Z"}],
    },
}
SCALED = {
    "kind": "Event",
    "metadata": {"uid": "e-1", "resourceVersion": "77"},
    "involvedObject": {"kind": "Deployment", "name": "chat-a"},
    "reason": "ScalingReplicaSet",
    "message": "Scaled up replica set chat-a-6c to 3",
    "lastTimestamp": "2026-09-21T10:02:00Z",
    "count": 1,
}
ALERTS = {
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "NodeDown", "severity": "critical", "pool": "chat-a"},
            "annotations": {"summary": "node-7 is down"},
            "startsAt": "2026-09-21T10:03:00Z",
            "fingerprint": "f00",
        },
        {"status": "resolved", "labels": {"alertname": "NodeDown"}, "startsAt": "2026-09-21T09:00:00Z"},
        {
            "status": "firing",
            "labels": {"alertname": "GustfrontIncident"},
            "startsAt": "2026-09-21T09:00:00Z",
        },
    ]
}


@pytest.mark.parametrize(
    ("sender", "body", "kind", "text", "pool"),
    [
        ("argocd", APPLICATION, "deploy", "chat synced to abcdef1", ""),
        ("argocd", {"app": "chat", "phase": "Failed", "at": 1_790_000_000}, "note", "chat failed to sync", ""),
        ("kubernetes", ROLLED, "deploy", "chat-a rolled out: registry.internal/vllm:0.12.1", "chat-a"),
        ("kubernetes", {"type": "MODIFIED", "object": SCALED}, "scale",
         "Deployment chat-a: ScalingReplicaSet (Scaled up replica set chat-a-6c to 3)", ""),
        ("kubernetes", {"eventmeta": {"kind": "deployment", "name": "prod/coder", "reason": "Updated"}, "text": "x"},
         "deploy", "prod/coder updated", ""),
        ("alertmanager", ALERTS, "alert", "NodeDown: node-7 is down", "chat-a"),
        ("generic", {"kind": "maintenance", "text": "rack 4"}, "maintenance", "rack 4", ""),
    ],
)  # fmt: skip
def test_what_pipelines_and_orchestrators_send_becomes_one_event(
    api: httpx.Client, folder: Path, sender: str, body: Any, kind: str, text: str, pool: str
) -> None:
    key = {"Idempotency-Key": f"{sender} {text}"}
    first = api.post(f"/api/v1/webhooks/{sender}", json=body, headers=key)
    assert first.json() == {"received": 1, "stored": 1, "already_there": 0}, first.text
    assert api.post(f"/api/v1/webhooks/{sender}", json=body, headers=key).json()["already_there"] == 1
    source = "webhook" if sender == "generic" else sender
    (event,) = [e for e in stored(folder, source) if e.text == text]
    assert (event.kind, event.pool) == (kind, pool)


@pytest.mark.parametrize(
    ("sender", "body", "words"),
    [
        ("argocd", {"metadata": 1}, "app: is missing"),
        ("argocd", [], "app: is missing"),
        ("kubernetes", {"metadata": {}}, "body: is no Kubernetes object"),
        ("kubernetes", {**SCALED, "lastTimestamp": "never"}, "lastTimestamp: is no time: never"),
        ("alertmanager", {"status": "firing"}, "alerts: is missing"),
        ("alertmanager", {"alerts": [{"labels": {}}]}, "alerts[0].labels.alertname: is missing"),
        ("generic", "text", "event: is no object"),
    ],
)
def test_a_bad_payload_of_a_webhook_is_a_clear_400(
    api: httpx.Client, sender: str, body: Any, words: str
) -> None:
    error = check_error(api.post(f"/api/v1/webhooks/{sender}", json=body), 400, "bad_request")
    assert error["message"] == words


def test_an_unknown_webhook_is_a_404(api: httpx.Client) -> None:
    check_error(api.post("/api/v1/webhooks/jenkins", json={}), 404, "not_found")


FIELDS = (
    *(
        "app",
        "kind",
        "metadata",
        "status",
        "name",
        "object",
        "items",
        "involvedObject",
        "reason",
        "alerts",
        "labels",
    ),
    *(
        "alertname",
        "startsAt",
        "events",
        "at",
        "text",
        "deployment_status",
        "deployment",
        "state",
        "release",
        "action",
    ),
    *(
        "workflow_run",
        "conditions",
        "spec",
        "template",
        "containers",
        "eventmeta",
        "operationState",
        "finishedAt",
    ),
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=20,
)


@pytest.mark.parametrize("sender", sorted(SENDERS))
@given(body=_json, event=st.sampled_from(["", "deployment_status", "release", "workflow_run", "ping"]))
@settings(max_examples=150, deadline=None)
def test_no_payload_breaks_a_reader(sender: str, body: Any, event: str) -> None:
    """Events come out, or an InputError that says what is wrong; never anything else."""
    context = Context(1_790_000_000.0, "d", "", frozenset({"a"}), {"x-github-event": event})
    try:
        taken: Taken = SENDERS[sender](body, context)
    except InputError as error:
        taken = Taken(ignored=error.problem)
    assert taken.events or taken.ignored
    for e in taken.events:
        assert 0 < e.ts < 1_790_000_000.0 + 2 * 86400
        assert "\n" not in e.text


# --- deliveries and receivers


def test_receivers_are_listed_without_secrets_and_tested(api: httpx.Client, bot: Receiver) -> None:
    text = api.get("/api/v1/receivers").text
    assert "secret-path" not in text
    assert "the key of the bot" not in text
    assert json.loads(text)["stopped"].startswith("delivery is not running")
    (first, second) = json.loads(text)["receivers"]
    assert (first["name"], first["kind"], first["where"]) == (
        "bot",
        "webhook",
        bot.url.removeprefix("http://"),
    )
    assert (first["state"], second["state"]) == ("unused", "unused")
    done = api.post("/api/v1/receivers/bot/test")
    assert done.json()["state"] == "sent", done.text
    assert bot.taken[-1].json["items"][0]["title"] == "Gustfront reaches this receiver"
    error = check_error(api.post("/api/v1/receivers/closed/test"), 502, "not_taken")
    assert error["message"].endswith("cannot be reached: Connection refused")
    check_error(api.post("/api/v1/receivers/nobody/test"), 404, "not_found")
    states = {r["name"]: r["state"] for r in api.get("/api/v1/receivers").json()["receivers"]}
    assert states == {"bot": "ok", "closed": "failing"}


def test_deliveries_are_listed_in_pages_and_a_refused_one_is_tried_again(
    api: httpx.Client, folder: Path, bot: Receiver
) -> None:
    from app.delivery.dispatcher import Dispatcher
    from core.config import load_config

    config = load_config(folder / "gustfront.yaml")
    with Store.open(config.database) as store:
        bot.answer = lambda _: Answer(400, "no")
        now = [time.time()]
        dispatcher = Dispatcher(store, config, clock=lambda: now[0], parallel=False)
        dispatcher.tick()
        now[0] += 30
        dispatcher.tick()
        page = api.get("/api/v1/deliveries", params={"receiver": "bot", "state": "parked"}).json()
        (refused,) = page["deliveries"]
        assert (refused["subject"], refused["action"], refused["error"]) == ("i-1", "open", "HTTP 400: no")
        one = api.get(f"/api/v1/deliveries/{refused['id']}").json()
        assert one["message"]["kind"] == "kv_eviction_storm"
        bot.answer = lambda _: Answer()
        assert api.post(f"/api/v1/deliveries/{refused['id']}/retry").json()["state"] == "pending"
        now[0] += 30
        dispatcher.tick()
        assert api.get(f"/api/v1/deliveries/{refused['id']}").json()["state"] == "sent"
        check_error(api.post(f"/api/v1/deliveries/{refused['id']}/retry"), 409, "conflict")
        dispatcher.close()
    everything = api.get("/api/v1/deliveries").json()["deliveries"]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.get(
            "/api/v1/deliveries", params={"limit": 1, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [d["id"] for d in page["deliveries"]]
        cursor = page["next"]
    assert seen == [d["id"] for d in everything]
    assert len(seen) == len(set(seen)) >= 2
    check_error(api.get("/api/v1/deliveries", params={"state": "lost"}), 400, "bad_request")
    check_error(api.get("/api/v1/deliveries/nothing"), 404, "not_found")


def test_metrics_tell_what_waits_and_who_lives(api: httpx.Client) -> None:
    text = api.get("/metrics").text
    assert 'gustfront_deliveries{receiver="bot",state="sent"}' in text
    assert 'gustfront_part_alive{part="collect"} 0.0' in text
    assert 'gustfront_part_alive{part="deliver"} 1.0' in text
    assert 'gustfront_part_heartbeat_age_seconds{part="collect"}' not in text


def test_every_endpoint_of_delivery_and_events_is_described(api: httpx.Client) -> None:
    paths = api.get("/api/v1/openapi.json").json()["paths"]
    for sender in SENDERS:
        assert "post" in paths[f"/api/v1/webhooks/{sender}"]
    assert set(paths["/api/v1/events"]["post"]["requestBody"]["content"]) == {
        "application/json",
        "application/x-www-form-urlencoded",
    }
    assert "post" in paths["/api/v1/deliveries/{id}/retry"]
    assert "post" in paths["/api/v1/receivers/{name}/test"]
