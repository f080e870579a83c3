"""What each kind of receiver is sent, and what becomes of its answers: real requests to a server of the test."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery import slack
from app.delivery.annotations import event_of
from app.delivery.channel import Channel
from app.delivery.message import Message, clean, of_incident
from app.delivery.receivers import sender_of
from app.delivery.sender import Batch, Item
from app.delivery.transport import SendError, retry_after
from app.delivery.webhook import verified
from core.config_delivery import ReceiverConfig
from core.deliveries import Delivery, Face
from core.records import Event
from sql.store import Store
from tests.delivery.receiver import Answer, Receiver
from tests.delivery.world import T0, World, config_of, incident

HOSTILE = (
    "KV <script>alert(1)</script> <!channel> *bold* `x` & <https://evil.example|click> \u202egnp\x1b[31m"
)


def receiver_of(kind: str, **spec: Any) -> ReceiverConfig:
    return config_of([{"name": "r", kind: spec}]).receivers[0]


def item(action: str = "open", told: Delivery | None = None, attempts: int = 0, **more: Any) -> Item:
    """An incident's delivery as the dispatcher hands it over."""
    one = incident("i-1", T0, **more)
    before = Face("open", "ticket", "slow_replica") if action == "update" else None
    if action == "resolve":
        one = replace(one, state="resolved", ended_at=T0 + 600)
    now = Face(one.state, one.severity, one.kind)
    m = of_incident(one, action, config_of([]), before=before, now=now, team="inference")  # type: ignore[arg-type]
    row = Delivery(
        "d-1", "r", "i-1", 1, action, "pending", "p", T0, T0, T0, attempts=attempts, message=m.as_row()
    )  # type: ignore[arg-type]
    return Item(row, m, told)


def send(receiver: ReceiverConfig, *items: Item, digest: bool = False) -> str:
    return sender_of(receiver.spec).send(Batch("b-1", items, digest), T0)


# --- Slack


def test_slack_gets_what_an_engineer_needs_in_order(hook: Receiver) -> None:
    send(receiver_of("slack", url=f"{hook.url}/services/T/B/x"), item())
    (request,) = hook.taken
    assert (request.method, request.path) == ("POST", "/services/T/B/x")
    body = request.json
    assert body["text"].startswith("KV eviction storm on coder-a")
    text = json.dumps(body["blocks"], ensure_ascii=False)
    order = ["KV eviction storm on coder-a", "*Severity*", "*Where*", "*Since*", "*Cause*", "*Ruled out*"]
    order += ["*First safe action*", "|Open incident>"]
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
    assert "The KV cache is too small for 48 sessions (92\u00a0% confident)" in text
    assert "Slow replica, Engine wedged" in text
    assert "http://127.0.0.1:8501/incident?id=i-1" in text


def test_nothing_that_a_label_holds_becomes_markup_in_slack() -> None:
    told = slack.payload(Batch("b", (item(title=HOSTILE, cause=HOSTILE),)))
    for block in told["blocks"]:
        for part in [block.get("text"), *block.get("fields", [])]:
            if part and part["type"] == "mrkdwn" and "|Open incident>" not in part["text"]:
                words = part["text"].split("\n", 1)[1]
                assert "<" not in words
                assert ">" not in words
                assert "*bold*" not in words
    assert "<!channel>" not in told["text"]
    assert "\u202e" not in json.dumps(told, ensure_ascii=False)
    assert "\x1b" not in json.dumps(told, ensure_ascii=False)


@given(st.text(max_size=4000), st.integers(1, 40), st.booleans())
def test_slack_is_never_sent_more_than_it_takes(text: str, n: int, digest: bool) -> None:
    made = item(title=text, cause=text)
    told = slack.payload(Batch("b", (made,) * n, digest))
    assert len(told["blocks"]) <= 50
    for block in told["blocks"]:
        parts = [*block.get("fields", []), *([block["text"]] if "text" in block else [])]
        assert len(block.get("fields", [])) <= 10
        for part in parts:
            most = 150 if block["type"] == "header" else 2000 if part in block.get("fields", []) else 3000
            assert 0 < len(part["text"]) <= most


@given(st.text(max_size=3000))
def test_a_cleaned_text_is_one_short_line_that_no_terminal_obeys(text: str) -> None:
    line = clean(text)
    assert len(line) <= 1500
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u2028" for c in line)


# --- generic webhook


def test_a_webhook_is_signed_over_time_and_body(hook: Receiver, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key\n")
    (tmp_path / "token").write_text("t0ken")
    files = {"secret_file": str(tmp_path / "key"), "token_file": str(tmp_path / "token")}
    send(receiver_of("webhook", url=f"{hook.url}/x", **files), item())
    (request,) = hook.taken
    header = request.headers["gustfront-signature"]
    assert header.startswith(f"t={T0:.0f},v1=")
    assert verified("a key", header, request.body, T0 + 60)
    assert not verified("a key", header, request.body + b" ", T0)
    assert not verified("another", header, request.body, T0)
    assert not verified("a key", header, request.body, T0 + 3600), "too old: it may be a replay"
    assert not verified("a key", "nonsense", request.body, T0)
    assert request.headers["authorization"] == "Bearer t0ken"
    assert request.headers["gustfront-delivery"] == "b-1"
    assert request.json["items"][0]["since"] == "2026-09-21T14:12:20Z"


# --- PagerDuty


def test_pagerduty_triggers_updates_and_resolves_with_one_key(hook: Receiver) -> None:
    receiver = receiver_of("pagerduty", routing_key="R" * 32, url=hook.url)
    hook.answer = lambda _: Answer(202, '{"status": "success", "dedup_key": "gustfront/i-1"}')
    assert send(receiver, item()) == "gustfront/i-1"
    send(receiver, item("update"))
    send(receiver, item("resolve"))
    assert {r.path for r in hook.taken} == {"/v2/enqueue"}
    first, second, last = (r.json for r in hook.taken)
    assert [x["event_action"] for x in (first, second, last)] == ["trigger", "trigger", "resolve"]
    assert {x["dedup_key"] for x in (first, second, last)} == {"gustfront/i-1"}
    assert {x["routing_key"] for x in (first, second, last)} == {"R" * 32}
    payload = first["payload"]
    assert (payload["severity"], payload["component"], payload["class"]) == (
        "critical",
        "coder-a",
        "kv_eviction_storm",
    )
    assert payload["timestamp"] == "2026-09-21T14:13:20Z"
    assert payload["custom_details"]["Owner"] == "inference"
    assert second["payload"]["summary"].startswith("Changed: ")
    assert "Changed" in second["payload"]["custom_details"]
    assert first["links"][0]["href"].endswith("/incident?id=i-1")


# --- Opsgenie


def test_opsgenie_creates_renews_and_closes_by_alias(hook: Receiver, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("g3nie")
    hook.answer = lambda _: Answer(202, '{"result": "Request will be processed"}')
    receiver = receiver_of(
        "opsgenie", api_key_file=str(tmp_path / "key"), url=hook.url, responders=["inference"], tags=["llm"]
    )
    send(receiver, item())
    known = item().delivery
    send(receiver, item("update", known))
    send(receiver, item("resolve", known))
    assert {r.headers["authorization"] for r in hook.taken} == {"GenieKey g3nie"}
    calls = [(r.method, r.path) for r in hook.taken]
    alias = "/v2/alerts/gustfront-i-1"
    assert calls == [
        ("POST", "/v2/alerts"),
        ("PUT", f"{alias}/priority?identifierType=alias"),
        ("PUT", f"{alias}/message?identifierType=alias"),
        ("POST", f"{alias}/notes?identifierType=alias"),
        ("POST", f"{alias}/close?identifierType=alias"),
    ]
    created = hook.taken[0].json
    assert (created["alias"], created["priority"], created["tags"]) == (
        "gustfront-i-1",
        "P1",
        ["llm", "kv_eviction_storm"],
    )
    assert created["responders"] == [{"name": "inference", "type": "team"}]
    assert "First safe action: Admit fewer sessions" in created["description"]
    assert len(created["message"]) <= 130


# --- Grafana


class FakeGrafana:
    """Annotations in memory behind the requests that Grafana's API takes."""

    def __init__(self, hook: Receiver) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.lose = False
        hook.answer = self.answer

    def answer(self, request: Any) -> Answer:
        assert request.headers["authorization"] == "Bearer gr4fana"
        if request.method == "POST":
            key = len(self.rows) + 1
            self.rows[key] = {**request.json, "id": key}
            return Answer(500, "lost") if self.lose else Answer(200, json.dumps({"id": key}))
        if request.method == "PATCH":
            key = int(request.path.rpartition("/")[2])
            if key not in self.rows:
                return Answer(404, "{}")
            self.rows[key] |= request.json
            return Answer(200, "{}")
        tags = [
            p.split("=", 1)[1].replace("%3A", ":")
            for p in request.path.split("?")[1].split("&")
            if p.startswith("tags=")
        ]
        return Answer(200, json.dumps([r for r in self.rows.values() if set(tags) <= set(r["tags"])]))


@pytest.fixture
def grafana_token(tmp_path: Path) -> str:
    (tmp_path / "token").write_text("gr4fana")
    return str(tmp_path / "token")


def test_grafana_shows_an_incident_as_one_region_even_when_an_answer_is_lost(
    store: Store, hook: Receiver, grafana_token: str
) -> None:
    grafana = FakeGrafana(hook)
    world = World(
        store, config_of([{"name": "g", "grafana": {"url": hook.url, "token_file": grafana_token}}])
    )
    world.start()
    world.step()
    grafana.lose = True
    world.open("i-1", title="<b>storm</b>")
    world.step(ticks=4)
    grafana.lose = False
    world.step(10, ticks=10)
    assert len(grafana.rows) == 1
    world.end("i-1")
    world.step(10, ticks=4)
    (row,) = grafana.rows.values()
    assert row["timeEnd"] > row["time"]
    assert row["text"].startswith("Over: &lt;b&gt;storm")
    assert set(row["tags"]) >= {"gustfront", "gustfront:i-1", "kv_eviction_storm", "coder-a"}
    grafana.rows.clear()  # somebody deletes it
    world.change("i-1", state="open", ended_at=None)
    world.step(10, ticks=4)
    assert len(grafana.rows) == 1


def test_deploys_go_to_grafana_and_annotations_of_people_come_back_once_without_a_circle(
    store: Store, hook: Receiver, grafana_token: str
) -> None:
    grafana = FakeGrafana(hook)
    spec = {"url": hook.url, "token_file": grafana_token, "read": True, "read_every": "10s"}
    world = World(store, config_of([{"name": "g", "grafana": spec}]))
    world.start()
    store.add_events([Event(world.time.now - 60, "deploy", "before anybody listened", "coder-a")])
    world.step()
    store.add_events(
        [
            Event(world.time.now, "deploy", "v1.4.2", "coder-a"),
            Event(world.time.now, "restart", "", "coder-a"),
        ]
    )
    at = round((world.time.now - 30) * 1000)
    grafana.rows[77] = {
        "id": 77,
        "time": at,
        "text": "<b>flag</b> on &amp; off",
        "tags": ["flag", "pool:chat-a"],
    }
    world.step(15, ticks=6)
    assert len(grafana.rows) == 2
    written = next(r for k, r in grafana.rows.items() if k != 77)
    assert written["text"] == "Deploy: v1.4.2<br>Where: pool coder-a"
    (read,) = [e for e in store.events() if e.source == "grafana"]
    assert (read.kind, read.text, read.pool, read.ts) == ("flag", "flag on & off", "chat-a", at / 1000)


@given(
    st.dictionaries(
        st.sampled_from(["id", "time", "text", "tags", "alertId"]),
        st.none() | st.integers() | st.text() | st.lists(st.text() | st.integers()),
    )
)
def test_no_annotation_breaks_the_reader(row: dict[str, Any]) -> None:
    found = event_of(row, "g", frozenset({"a"}))
    assert found is None or (found.ts > 0 and found.data["delivery"] == f"grafana/g/{row['id']}")


# --- e-mail


class Inbox:
    """An SMTP server on the loopback."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.refuse = ""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.refuse:
            return self.refuse
        self.mails.append((envelope, session.ssl is not None))
        return "250 OK"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(certificate, key) for localhost, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    argv += [
        "-keyout",
        key,
        "-out",
        cert,
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
    ]
    try:
        subprocess.run(argv, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return cert, key


@contextmanager
def smtp(inbox: Inbox, certificate: tuple[str, str]) -> Iterator[int]:
    from aiosmtpd.controller import Controller

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    from tests.servers import free_port

    server = Controller(
        inbox, hostname="127.0.0.1", port=free_port(), tls_context=context, require_starttls=True
    )
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def test_mail_goes_out_over_starttls_with_a_verified_certificate(certificate: tuple[str, str]) -> None:
    inbox = Inbox()
    with smtp(inbox, certificate) as port:
        spec = {
            "host": "localhost",
            "port": port,
            "from": "gustfront@example.org",
            "to": ["a@example.org", "b@example.org"],
        }
        receiver = receiver_of("email", **spec, ca_file=certificate[0])
        send(receiver, item(title="storm\r\nBcc: all@example.org"))
        with pytest.raises(SendError, match="certificate cannot be verified") as caught:
            send(receiver_of("email", **spec), item())
        assert caught.value.again
        inbox.refuse = "451 try again later"
        with pytest.raises(SendError, match="SMTP 451: try again later") as caught:
            send(receiver, item())
        assert caught.value.again
        inbox.refuse = "554 rejected"
        with pytest.raises(SendError, match="SMTP 554") as caught:
            send(receiver, item())
        assert not caught.value.again
    ((envelope, encrypted),) = inbox.mails
    assert encrypted
    assert envelope.rcpt_tos == ["a@example.org", "b@example.org"]
    from email import message_from_bytes, policy

    mail = message_from_bytes(envelope.content, policy=policy.default)
    assert mail["Subject"] == "[page] storm Bcc: all@example.org"
    assert mail["Bcc"] is None
    assert mail["Message-ID"] == "<b-1@gustfront.example.org>"
    assert mail.get_content_type() == "text/plain"
    body = mail.get_content()
    assert "First safe action: Admit fewer sessions" in body
    assert "http://127.0.0.1:8501/incident?id=i-1" in body
    with pytest.raises(SendError, match="cannot be reached") as caught:
        send(receiver, item())
    assert caught.value.again


# --- HTTP in general


def test_a_redirect_is_not_followed(hook: Receiver) -> None:
    hook.answer = lambda r: (
        Answer(302, headers={"Location": f"{hook.url}/elsewhere"}) if r.path == "/x" else Answer()
    )
    with pytest.raises(SendError, match="redirect") as caught:
        send(receiver_of("webhook", url=f"{hook.url}/x"), item())
    assert not caught.value.again
    assert [r.path for r in hook.seen] == ["/x"]


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (400, False),
        (401, False),
        (404, False),
        (408, True),
        (425, True),
        (429, True),
        (500, True),
        (503, True),
    ],
)
def test_what_may_succeed_later_is_tried_again_and_the_rest_is_not(
    hook: Receiver, status: int, again: bool
) -> None:
    hook.answer = lambda _: Answer(status, "why\x1b not", {"Retry-After": "7"})
    with pytest.raises(SendError) as caught:
        send(receiver_of("webhook", url=hook.url), item())
    assert (caught.value.again, caught.value.status, caught.value.wait) == (again, status, 7.0)
    assert str(caught.value) == f"HTTP {status}: why not"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("Mon, 21 Sep 2026 14:13:50 GMT", 30.0), ("Mon, 21 Sep 2020 00:00:00 GMT", 0.0), ("86400", 3600.0),
     ("", None), ("soon", None), ("-5", None), ("9" * 40, None)],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_date_and_bounded(text: str, seconds: float | None) -> None:
    assert retry_after(text, T0) == seconds


def test_errors_and_settings_never_repeat_an_address_or_a_key(hook: Receiver) -> None:
    secret = "T000/B000/verysecret"
    receiver = receiver_of("slack", url=f"http://127.0.0.1:9/{secret}")
    with pytest.raises(SendError) as caught:
        send(receiver, item())
    assert "verysecret" not in str(caught.value)
    assert "verysecret" not in repr(receiver)
    assert "verysecret" not in repr(receiver_of("pagerduty", routing_key="verysecret"))


def test_an_answer_without_end_or_pause_is_cut_off(hook: Receiver) -> None:
    hook.answer = lambda _: Answer(200, "x" * 3_000_000)
    send(receiver_of("webhook", url=hook.url, timeout="2s"), item())


def test_a_receiver_that_does_not_answer_is_given_up_in_time() -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        begin = time.monotonic()
        with pytest.raises(SendError, match=r"did not answer within 0\.5 s") as caught:
            send(receiver_of("webhook", url=f"http://127.0.0.1:{port}", timeout="500ms"), item())
        assert caught.value.again
        assert time.monotonic() - begin < 5


def test_certificates_are_verified(certificate: tuple[str, str]) -> None:
    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    class Quiet(HTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            return  # a client that refuses the certificate hangs up

    server = Quiet(("127.0.0.1", 0), Taking)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"https://localhost:{server.server_address[1]}/"
    try:
        with pytest.raises(SendError, match="certificate cannot be verified"):
            send(receiver_of("webhook", url=url), item())
        send(receiver_of("webhook", url=url, ca_file=certificate[0]), item())
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def test_proxies_and_passwords_of_the_environment_are_not_used(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login x password y\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    send(receiver_of("webhook", url=hook.url), item())
    assert "authorization" not in hook.taken[0].headers


def test_a_secret_is_read_anew_each_time_and_a_missing_one_is_waited_for(
    hook: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "address"
    receiver = receiver_of("slack", url_file=str(file))
    with pytest.raises(SendError, match="cannot read the secret") as caught:
        send(receiver, item())
    assert caught.value.again
    for name in ("first", "second"):
        file.write_text(f"{hook.url}/{name}\n")
        send(receiver, item())
    assert [r.path for r in hook.taken] == ["/first", "/second"]


def test_a_message_is_read_back_as_it_was_kept() -> None:
    m = item("resolve").message
    assert Message.from_row(json.loads(json.dumps(m.as_row()))) == m
    assert Message.from_row({**m.as_row(), "of a later release": 1}) == m


def test_a_webhook_gets_a_heartbeat_only_while_collector_and_detector_live(
    store: Store, hook: Receiver
) -> None:
    from collectors.selfmetrics import HEARTBEAT
    from core.beats import DETECT

    now = [T0]
    channel = Channel(
        receiver_of("webhook", url=hook.url, heartbeat="30s"), store, lambda: now[0], lambda: True
    )
    channel.work()
    assert hook.taken == []
    store.set_cursor(HEARTBEAT, repr(T0))
    store.set_cursor(DETECT, repr(T0))
    for _ in range(10):
        now[0] += 10
        channel.work()
    assert len(hook.taken) == 4
    assert hook.taken[0].json["type"] == "heartbeat"
    for _ in range(20):
        now[0] += 10
        channel.work()
    assert len(hook.taken) == 4, "both have been silent for two minutes"


def test_a_runner_up_that_was_ruled_out_is_not_said_to_be_possible() -> None:
    said = dict(item().message.facts)
    assert said["Else it would be"] == "Capacity shortfall"
    assert said["First safe action"].endswith("Running sessions keep their cache (no restart)")
    said = dict(item(runner_up="slow_replica").message.facts)
    assert "Else it would be" not in said
    assert said["Ruled out"] == "Slow replica, Engine wedged"


def test_the_line_for_several_counts_incidents_and_events_apart() -> None:
    from app.delivery.message import of_event
    from app.delivery.sender import summary

    one = item()
    two = replace(one, delivery=replace(one.delivery, subject="i-2"))
    over = item("resolve")
    deploy = of_event(Event(T0, "deploy", "v2", "chat-a"), "event:1", config_of([]))
    event = Item(replace(one.delivery, subject="event:1"), deploy)
    assert summary([one]) == "KV eviction storm on coder-a: 96 → 12 % cache hits"
    assert summary([one, two, over]) == "2 incidents on coder-a: 2 opened, 1 over"
    assert summary([one, event]) == "1 incident and 1 event on chat-a, coder-a: 1 opened"
    assert (
        summary([event, replace(event, delivery=replace(one.delivery, subject="event:2"))])
        == "2 events on chat-a"
    )


def test_many_incidents_in_one_slack_message_are_a_line_each_and_none_is_left_out() -> None:
    made = [item(title=f"storm {n:02d}") for n in range(20)]
    text = json.dumps(slack.payload(Batch("b", tuple(made))))
    assert all(f"storm {n:02d}" in text for n in range(20))
