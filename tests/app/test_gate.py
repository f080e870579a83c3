"""The gate of a real server: who comes in, from where, with what, and in which shape the others are told."""

from __future__ import annotations

import base64
import hmac
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app.services import tokens
from core.records import OutputRecord
from sql.people import AuditRow
from sql.store import Store
from tests.app.history import END, History
from tests.app.server import running_app

PROXY = """
auth:
  mode: proxy
  proxy: {addresses: [127.0.0.1], secret: 0123456789abcdef0123}
  roles:
    admin: {emails: [ann@example.org]}
    responder: {groups: [on-call]}
  default_role: viewer
"""
SECRET = {"x-gustfront-proxy": "0123456789abcdef0123"}
VIEWER = SECRET | {"x-forwarded-user": "vera"}
RESPONDER = SECRET | {"x-forwarded-user": "rob", "x-forwarded-groups": "on-call"}
ADMIN = SECRET | {
    "x-forwarded-user": "ann",
    "x-forwarded-email": "ann@example.org",
    "x-forwarded-for": "203.0.113.9",
}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Store]]:
    folder = tmp_path_factory.mktemp("proxied")
    (folder / "gustfront.yaml").write_text("database: sqlite:///./g.db\n" + PROXY)
    os.environ["FORWARDED_ALLOW_IPS"] = ""
    with (
        Store.open(f"sqlite:///{folder / 'g.db'}") as store,
        running_app(folder / "gustfront.yaml", folder) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        store.add_outputs([OutputRecord("o-1", END, END - 1, "chat", text="a secret")])
        yield client, store


@pytest.fixture(scope="module")
def local(storm_history: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("local")
    with running_app(storm_history.config, folder) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "fix"}
    assert body["error"]["code"] == code
    assert body["error"]["fix"]
    return body["error"]  # type: ignore[no-any-return]


def bearer(
    store: Store, *scopes: str, role: str = "viewer", seconds: float | None = 3600.0
) -> dict[str, str]:
    until = None if seconds is None else time.time() + seconds
    token, _ = tokens.create(store, "test", role=role, scopes=scopes, made_by="t", expires_at=until)
    return {"authorization": f"Bearer {token}"}


# --------------------------------------------------------------------------------------------------------- who it is


def test_a_proxy_says_who_it_is_and_rules_give_the_role(proxied: tuple[httpx.Client, Store]) -> None:
    api, _ = proxied
    for headers, name, role in (
        (VIEWER, "vera", "viewer"),
        (RESPONDER, "rob", "responder"),
        (ADMIN, "ann", "admin"),
    ):
        me = api.get("/api/v1/whoami", headers=headers).json()
        assert me == {"name": name, "role": role, "via": "proxy", "scopes": None, "texts": role == "admin"}


def test_without_the_proxy_nobody_comes_in(proxied: tuple[httpx.Client, Store]) -> None:
    api, _ = proxied
    for path in ("/api/v1/targets", "/api/v1/openapi.json", "/metrics", "/api/v1/nothing"):
        answer = api.get(path)
        error(answer, 401, "not_signed_in")
        assert answer.headers["www-authenticate"] == "Bearer"
    page = api.get("/", headers={"accept": "text/html"})
    assert page.status_code == 401
    assert "The proxy does not say who you are." in page.text
    assert api.get("/_stcore/host-config").status_code == 401
    assert api.get("/static/index.js").status_code == 401
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json()["status"] == "ready"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-user": "ann"},
        {"x-forwarded-user": "ann", "x-gustfront-proxy": "0123456789abcdef0124"},
        {"x-forwarded-email": "ann@example.org"},
    ],
)
def test_a_name_from_elsewhere_than_the_proxy_is_refused(
    proxied: tuple[httpx.Client, Store], headers: dict[str, str]
) -> None:
    api, _ = proxied
    told = error(api.get("/api/v1/targets", headers=headers), 403, "untrusted_proxy")
    assert "auth.proxy" in told["fix"]


def test_the_header_for_pages_cannot_be_sent(proxied: tuple[httpx.Client, Store]) -> None:
    api, _ = proxied
    forged = base64.urlsafe_b64encode(b'{"name": "root"}').decode() + ".00"
    error(api.get("/api/v1/whoami", headers={"x-gustfront-identity": forged}), 401, "not_signed_in")


# ------------------------------------------------------------------------------------------------------------ tokens


def test_a_token_opens_what_its_scopes_say_and_nothing_else(proxied: tuple[httpx.Client, Store]) -> None:
    api, store = proxied
    reader = bearer(store, "fleet:read")
    assert api.get("/api/v1/targets", headers=reader).json() == {"targets": [], "next": None}
    me = api.get("/api/v1/whoami", headers=reader).json()
    assert (me["name"], me["role"], me["via"], me["scopes"]) == (
        "token:test",
        "viewer",
        "token",
        ["fleet:read"],
    )
    told = error(api.get("/api/v1/slos", headers=reader), 403, "forbidden")
    assert "lacks the scope slo:read" in told["message"]
    assert (
        "lacks the scope outputs:write"
        in error(api.post("/api/v1/outputs", json=[], headers=reader), 403, "forbidden")["message"]
    )
    assert (
        "lacks the scope metrics:read"
        in error(api.get("/metrics", headers=reader), 403, "forbidden")["message"]
    )
    assert "gustfront_store_up 1.0" in api.get("/metrics", headers=bearer(store, "metrics:read")).text
    # a page is not for tokens
    assert api.get("/", headers=reader).status_code == 401


def test_a_gateways_token_sends_outputs_and_reads_nothing(proxied: tuple[httpx.Client, Store]) -> None:
    api, store = proxied
    sender = bearer(store, "outputs:write")
    body = [{"id": "o-2", "ts": END, "output": "All is well."}]
    assert api.post("/api/v1/outputs", json=body, headers=sender).json()["stored"] == 1
    otlp = api.post("/api/v1/otlp/v1/traces", json={"resourceSpans": []}, headers=sender)
    assert otlp.status_code == 200, otlp.text
    error(api.get("/api/v1/incidents", headers=sender), 403, "forbidden")
    error(api.post("/api/v1/outcomes", json=[], headers=sender), 403, "forbidden")
    error(api.post("/api/v1/outputs", json=body), 401, "not_signed_in")
    assert (
        "needs the role responder"
        in error(api.post("/api/v1/outputs", json=body, headers=VIEWER), 403, "forbidden")["message"]
    )


def test_forged_revoked_and_expired_tokens_are_refused_in_one_shape(
    proxied: tuple[httpx.Client, Store],
) -> None:
    api, store = proxied
    good = bearer(store, "fleet:read")["authorization"]
    row_id = good.split("_")[1]
    forged = [good[:-1] + ("A" if good[-1] != "A" else "B"), "Bearer gft_aaaaaaaaaa_" + "b" * 43, good + "x"]
    for one in forged:
        answer = api.get("/api/v1/targets", headers={"authorization": one})
        assert error(answer, 401, "bad_token")["message"] == "the token is not known"
        assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    # a token that is no good is not saved by a proxy that says who it is
    error(api.get("/api/v1/targets", headers=ADMIN | {"authorization": forged[0]}), 401, "bad_token")
    assert api.get("/api/v1/targets", headers={"authorization": good}).status_code == 200
    tokens.revoke(store, row_id, "t")
    assert (
        "was revoked"
        in error(api.get("/api/v1/targets", headers={"authorization": good}), 401, "bad_token")["message"]
    )
    short = bearer(store, "fleet:read", seconds=0.2)
    time.sleep(0.3)
    assert "expired" in error(api.get("/api/v1/targets", headers=short), 401, "bad_token")["message"]


def test_a_bearer_that_the_proxy_passes_on_is_the_proxys_matter(proxied: tuple[httpx.Client, Store]) -> None:
    api, _ = proxied
    passed_on = ADMIN | {"authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln"}
    assert api.get("/api/v1/whoami", headers=passed_on).json()["name"] == "ann"
    error(
        api.get("/api/v1/whoami", headers={"authorization": passed_on["authorization"]}), 401, "not_signed_in"
    )


def test_the_use_of_a_token_is_seen_in_the_list(proxied: tuple[httpx.Client, Store]) -> None:
    api, store = proxied
    token = bearer(store, "fleet:read")
    api.get("/api/v1/targets", headers=token)
    row = store.token(token["authorization"].split("_")[1])
    assert row is not None
    assert row.last_used_from == "127.0.0.1"
    assert row.last_used_at == pytest.approx(time.time(), abs=30)


def test_a_webhook_that_github_signed_needs_no_token_and_nothing_else_passes_with_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("github secret\n")
    text = "database: sqlite:///./g.db\nwebhooks: {github_secret_file: ./secret}\n" + PROXY
    (tmp_path / "gustfront.yaml").write_text(text)
    Store.open(f"sqlite:///{tmp_path / 'g.db'}").close()
    os.environ["FORWARDED_ALLOW_IPS"] = ""
    body = b'{"action": "published", "release": {"tag_name": "v2"}, "repository": {"full_name": "a/b"}}'
    right = "sha256=" + hmac.new(b"github secret", body, "sha256").hexdigest()
    with (
        running_app(tmp_path / "gustfront.yaml", tmp_path) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):

        def send(signature: str, path: str = "/api/v1/webhooks/github") -> httpx.Response:
            headers = {
                "content-type": "application/json",
                "x-github-event": "release",
                "host": "g.example.org",
            }
            signed = headers | ({"x-hub-signature-256": signature} if signature else {})
            return client.post(path, content=body, headers=signed)

        assert send(right).json()["stored"] == 1
        error(send(right[:-1] + ("0" if right[-1] != "0" else "1")), 401, "bad_signature")
        error(send(""), 403, "foreign_host")
        error(send(right, "/api/v1/webhooks/generic"), 403, "foreign_host")
        error(send(right, "/api/v1/events"), 403, "foreign_host")


# ------------------------------------------------------------------------------------------------------------- audit


def lines(store: Store, action: str) -> list[AuditRow]:
    return [a for a in store.audit(limit=200) if a.action == action]


def test_what_people_do_and_what_they_were_refused_is_in_the_audit_log(
    proxied: tuple[httpx.Client, Store],
) -> None:
    api, store = proxied
    path = "/api/v1/incidents/none/note"
    told = error(api.post(path, json={"text": "looking"}, headers=VIEWER), 403, "forbidden")
    assert told["message"] == "vera has the role viewer; this needs the role responder"
    error(api.post(path, json={"text": "looking"}, headers=RESPONDER), 404, "not_found")
    done, refused = lines(store, "note")
    assert (refused.who, refused.role, refused.allowed, refused.subject) == ("vera", "viewer", False, "none")
    assert (done.who, done.role, done.allowed, done.detail) == ("rob", "responder", True, {"text": "looking"})


def test_the_audit_log_is_read_by_admins_in_pages(proxied: tuple[httpx.Client, Store]) -> None:
    api, store = proxied
    for i in range(5):
        store.add_audit(AuditRow(f"{i:020d}", 1000.0 + i, "zoe", "admin", "oidc", "test", str(i), "10.0.0.9"))
    assert (
        "needs the role admin"
        in error(api.get("/api/v1/audit", headers=RESPONDER), 403, "forbidden")["message"]
    )
    seen, cursor = [], None
    while True:
        query = {"who": "zoe", "limit": 2} | ({"cursor": cursor} if cursor else {})
        answer = api.get("/api/v1/audit", params=query, headers=ADMIN).json()
        seen += [a["subject"] for a in answer["audit"]]
        cursor = answer["next"]
        if cursor is None:
            break
    assert seen == ["4", "3", "2", "1", "0"]
    for wrong in ({"limit": 0}, {"limit": "x"}, {"cursor": "nonsense"}, {"cursor": "WzEsIDJd"}):
        error(api.get("/api/v1/audit", params=wrong, headers=ADMIN), 400, "bad_request")


# -------------------------------------------------------------------------------------------------- foreign web pages


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://localhost"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_foreign_page_cannot_write(local: httpx.Client, headers: dict[str, str]) -> None:
    answer = local.post("/api/v1/incidents/storm-1/note", json={"text": "hi"}, headers=headers)
    error(answer, 403, "foreign_origin")
    assert "access-control-allow-origin" not in answer.headers
    assert all(e["action"] != "note" for e in local.get("/api/v1/incidents/storm-1").json()["log"])


def test_a_form_that_any_page_can_send_is_not_a_body(local: httpx.Client) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
        answer = local.post(
            "/api/v1/incidents/storm-1/note", content=b'{"text": "hi"}', headers={"content-type": kind}
        )
        error(answer, 415, "bad_content_type")


def test_no_answer_can_be_read_by_a_foreign_page(local: httpx.Client) -> None:
    for path in ("/api/v1/targets", "/", "/_stcore/health", "/_stcore/host-config"):
        answer = local.get(path, headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers, path
    preflight = local.options(
        "/api/v1/incidents/storm-1/note",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8501", "127.0.0.1.evil.example", ""])
def test_a_name_that_was_pointed_here_is_refused(local: httpx.Client, host: str) -> None:
    told = error(local.get("/api/v1/incidents", headers={"host": host}), 403, "foreign_host")
    assert told["fix"] == "add the name to app.hosts"
    page = local.get("/", headers={"host": host, "accept": "text/html"})
    assert page.status_code == 403
    assert "app.hosts" in page.text


def socket(local: httpx.Client, **headers: str) -> int:
    """The HTTP status of opening the pages' WebSocket; 101 where it opens."""
    url = str(local.base_url).replace("http", "ws", 1) + "/_stcore/stream"
    try:
        with connect(url, additional_headers=headers, subprotocols=["streamlit"], proxy=None):  # type: ignore[list-item]
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_the_socket_of_the_pages_opens_for_them_alone(local: httpx.Client) -> None:
    own = str(local.base_url).rstrip("/")
    assert socket(local, origin=own) == 101
    assert socket(local) == 101  # a program has nobody's cookies
    for foreign in ("https://evil.example", "http://127.0.0.1:1", "http://localhost:8501", "null"):
        assert socket(local, origin=foreign) == 403, foreign


def test_without_auth_what_came_through_a_proxy_is_not_local(local: httpx.Client) -> None:
    for name in ("x-forwarded-for", "forwarded", "x-real-ip", "via"):
        told = error(local.get("/api/v1/incidents", headers={name: "203.0.113.9"}), 403, "not_local")
        assert "app.insecure_listen: true" in told["fix"]
    assert (
        local.get("/", headers={"x-forwarded-for": "203.0.113.9", "accept": "text/html"}).status_code == 403
    )


def test_pages_and_answers_carry_the_headers_that_keep_them_apart(local: httpx.Client) -> None:
    page = local.get("/", headers={"accept": "text/html"})
    policy = page.headers["content-security-policy"]
    for part in (
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "frame-ancestors 'self'",
    ):
        assert part in policy
    for answer in (page, local.get("/api/v1/targets"), local.get("/api/v1/nothing")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


# ------------------------------------------------------------------------------------------------------------ limits


def test_who_asks_too_often_has_to_wait_and_is_told_how_long(tmp_path: Path) -> None:
    (tmp_path / "gustfront.yaml").write_text("database: sqlite:///./g.db\napp: {requests_per_minute: 5}\n")
    Store.open(f"sqlite:///{tmp_path / 'g.db'}").close()
    with (
        running_app(tmp_path / "gustfront.yaml", tmp_path) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        found = [client.get("/api/v1/targets") for _ in range(7)]
        assert [a.status_code for a in found[:5]] == [200] * 5
        error(found[-1], 429, "too_many_requests")
        assert 1 <= int(found[-1].headers["retry-after"]) <= 12
        assert client.get("/healthz").status_code == 200
        assert client.get("/").status_code == 200


def test_a_configuration_that_becomes_wrong_lets_nobody_in(
    proxied: tuple[httpx.Client, Store], tmp_path: Path
) -> None:
    file = tmp_path / "gustfront.yaml"
    file.write_text("database: sqlite:///./g.db\n" + PROXY)
    Store.open(f"sqlite:///{tmp_path / 'g.db'}").close()
    with running_app(file, tmp_path) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/api/v1/targets").status_code == 401
        file.write_text("auth: {mode: nome}\n")
        assert client.get("/api/v1/targets").status_code == 401
        assert client.get("/api/v1/whoami", headers=ADMIN).status_code in (200, 400)


def test_a_server_that_would_not_see_the_proxys_own_address_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "gustfront.yaml").write_text("database: sqlite:///./g.db\n" + PROXY)
    os.environ["FORWARDED_ALLOW_IPS"] = "127.0.0.1"
    with (
        pytest.raises(RuntimeError, match="FORWARDED_ALLOW_IPS"),
        running_app(tmp_path / "gustfront.yaml", tmp_path),
    ):
        pass
