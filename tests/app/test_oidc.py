"""Signing in at a real (small) OpenID Connect provider, over HTTP and in Chromium."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app.services.wording import stamp
from core.records import OutputRecord
from sql.store import Store
from tests.app import history
from tests.app.browser import browser, find_chromium
from tests.app.history import END, History
from tests.app.identity_provider import CLIENT, SECRET, Provider, provider
from tests.app.server import free_port, running_app

ANN = {"sub": "1", "preferred_username": "ann", "email": "ann@example.org", "email_verified": True}
ROB = {
    "sub": "2",
    "preferred_username": "rob",
    "email": "rob@example.org",
    "email_verified": True,
    "groups": ["on-call"],
}
VERA = {"sub": "3", "preferred_username": "vera", "email": "vera@example.org", "email_verified": True}
MAL = {"sub": "4", "preferred_username": "mal", "email": "ann@example.org", "email_verified": False}


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A history of this module's own, with a text: its tests write."""
    made = history.make(tmp_path_factory.mktemp("mine"))
    bad = OutputRecord(
        "bad-1", END - 30, END - 60, "coding-agent", pool="coder", replica="coder-0", session="s",
        verdict="hard", rules={"char_run": 64.0}, text="a secret " + "!" * 64, random=True,
    )  # fmt: skip
    with Store.open(made.url) as store:
        store.add_outputs([bad])
    return made


@pytest.fixture(scope="module")
def app(mine: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Provider]]:
    folder = tmp_path_factory.mktemp("oidc")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with provider(f"{url}/oauth2callback") as idp:
        (folder / "gustfront.yaml").write_text(
            mine.config.read_text()
            + f"""
auth:
  mode: oidc
  oidc: {{issuer: "{idp.issuer}", client_id: {CLIENT}, client_secret: "{SECRET}", url: "{url}"}}
  roles:
    admin: {{emails: [ann@example.org]}}
    responder: {{groups: [on-call]}}
    viewer: {{domains: [example.org]}}
"""
        )
        with running_app(folder / "gustfront.yaml", folder, port=port) as started:
            yield started, idp


@contextlib.contextmanager
def sign_in(url: str, idp: Provider, person: dict[str, object], path: str = "/") -> Iterator[httpx.Client]:
    """A client that went the whole way, as a browser does."""
    idp.person = dict(person)
    accept = {"accept": "text/html"}
    with httpx.Client(base_url=url, timeout=60, follow_redirects=True, headers=accept) as client:
        client.get("/login", params={"next": path})
        yield client


def test_who_is_not_signed_in_sees_one_page_and_nothing_else(app: tuple[str, Provider]) -> None:
    url, _ = app
    with httpx.Client(base_url=url, timeout=60) as client:
        page = client.get("/incident?id=storm-1", headers={"accept": "text/html"})
        assert page.status_code == 401
        assert 'href="/login?next=%2Fincident%3Fid%3Dstorm-1"' in page.text
        assert "storm" not in page.text.replace("storm-1", "")
        for path in ("/api/v1/incidents", "/_stcore/host-config", "/static/x.js", "/metrics"):
            assert client.get(path).status_code == 401, path
        with pytest.raises(InvalidStatus):
            connect(url.replace("http", "ws") + "/_stcore/stream", proxy=None).close()


@pytest.mark.parametrize(("person", "role"), [(ANN, "admin"), (ROB, "responder"), (VERA, "viewer")])
def test_claims_of_the_provider_give_the_role(
    app: tuple[str, Provider], person: dict[str, object], role: str
) -> None:
    url, idp = app
    with sign_in(url, idp, person) as client:
        me = client.get("/api/v1/whoami").json()
        assert (me["name"], me["role"], me["via"]) == (person["preferred_username"], role, "oidc")
        assert client.get("/api/v1/audit").status_code == (200 if role == "admin" else 403)
        assert client.get("/").status_code == 200


def test_the_code_is_asked_for_with_pkce_state_and_nonce_and_the_secret_is_not_in_the_browser(
    app: tuple[str, Provider],
) -> None:
    url, idp = app
    with sign_in(url, idp, ANN) as client:
        asked = idp.asked[-1]
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert {"state", "nonce", "code_challenge"} <= set(asked)
        assert "openid" in asked["scope"]
        assert idp.refused == []
        cookies = {c.name: c for c in client.cookies.jar}
        assert cookies["_streamlit_user"].has_nonstandard_attr("HttpOnly")
        assert all(SECRET not in str(c.value) for c in cookies.values())


def test_an_address_that_the_provider_did_not_verify_gives_no_role(app: tuple[str, Provider]) -> None:
    url, idp = app
    with sign_in(url, idp, MAL) as client:
        page = client.get("/")
        assert page.status_code == 403
        assert "Mal is signed in, but no rule gives a role." in page.text
        assert 'href="/auth/logout"' in page.text
        assert client.get("/api/v1/whoami").json()["error"]["code"] == "no_role"


def test_an_id_token_that_the_providers_key_did_not_sign_is_worth_nothing(app: tuple[str, Provider]) -> None:
    url, idp = app
    idp.forged = True
    try:
        with sign_in(url, idp, ANN) as client:
            assert "_streamlit_user" not in client.cookies
            assert client.get("/").status_code == 401
    finally:
        idp.forged = False


def test_an_answer_that_nobody_asked_for_and_a_cookie_that_was_changed_are_worth_nothing(
    app: tuple[str, Provider],
) -> None:
    url, idp = app
    with httpx.Client(
        base_url=url, timeout=60, follow_redirects=True, headers={"accept": "text/html"}
    ) as client:
        assert client.get("/oauth2callback", params={"code": "x", "state": "y"}).status_code == 401
    with sign_in(url, idp, VERA) as client:
        good = client.cookies["_streamlit_user"]
        assert client.get("/api/v1/whoami").status_code == 200
    for bad in (good[:-2], good + "x", good.replace(good[10], "A" if good[10] != "A" else "B"), "x", ""):
        with httpx.Client(base_url=url, timeout=60, cookies={"_streamlit_user": bad}) as client:
            assert client.get("/api/v1/whoami").status_code == 401


def test_after_the_sign_in_comes_the_page_that_was_asked_for_and_never_another_site(
    app: tuple[str, Provider],
) -> None:
    url, idp = app
    with sign_in(url, idp, VERA, "/incident?id=storm-1") as client:
        assert "gustfront_next" not in client.cookies
    for path, lands in (("/incident?id=storm-1", "/incident?id=storm-1"), ("//evil.example/x", "/")):
        with httpx.Client(base_url=url, timeout=60, headers={"accept": "text/html"}) as client:
            idp.person = dict(VERA)
            answer = client.get("/login", params={"next": path})
            for _ in range(8):
                if not answer.is_redirect:
                    break
                target = answer.headers["location"]
                answer = client.get(target)
            assert answer.status_code == 200
            assert str(answer.url) == url + lands


def test_signing_out_ends_it(app: tuple[str, Provider]) -> None:
    url, idp = app
    with sign_in(url, idp, ANN) as client:
        assert client.get("/api/v1/whoami").status_code == 200
        client.get("/auth/logout")
        assert client.get("/api/v1/whoami").status_code == 401


def test_a_foreign_page_cannot_act_with_a_signed_in_visitor(app: tuple[str, Provider]) -> None:
    url, idp = app
    with sign_in(url, idp, ANN) as client:
        answer = client.post(
            "/api/v1/incidents/storm-1/note", json={"text": "x"}, headers={"origin": "https://evil.example"}
        )
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "foreign_origin"
        own = client.post("/api/v1/incidents/storm-1/note", json={"text": "x"}, headers={"origin": url})
        assert own.status_code == 200, own.text


# ------------------------------------------------------------------------------------------------------------ browser


@pytest.mark.browser
@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
def test_a_person_signs_in_from_a_link_sees_who_they_are_and_signs_out(
    app: tuple[str, Provider], mine: History, tmp_path: Path
) -> None:
    url, idp = app
    at = f"as_of={stamp(END)}"
    idp.person = dict(ROB)
    with browser() as tab:
        tab.open(f"{url}/incident?id=storm-1&{at}")
        tab.wait_for_text("Sign in to see")
        tab.screenshot(tmp_path / "sign-in.png", full=False)
        tab.evaluate("document.querySelector('a.go').click()")
        tab.wait_for_text("Ruled out", seconds=90)
        tab.wait_until_idle(seconds=60)
        here = urlsplit(tab.evaluate("location.href"))
        assert here.path == "/incident"
        assert parse_qs(here.query)["id"] == ["storm-1"]
        sidebar = tab.evaluate("document.querySelector('[data-testid=\"stSidebar\"]').innerText")
        assert "rob" in sidebar
        assert "responder" in sidebar
        me = json.loads(tab.evaluate("fetch('/api/v1/whoami').then(r => r.text())"))
        assert (me["name"], me["role"]) == ("rob", "responder")
        tab.open(f"{url}/quality?{at}")
        tab.wait_for_text("Texts of outputs are shown to admin; you are responder.", seconds=60)
        tab.wait_until_idle(seconds=60)
        out = "[...document.querySelectorAll('button')].find(b => b.innerText.includes('Sign out'))"
        tab.wait_for(out)
        tab.screenshot(tmp_path / "signed-in.png", full=False)
        tab.evaluate(f"{out}.click()")
        tab.wait_for_text("Sign in to see", seconds=60)
    with browser() as tab:
        idp.person = dict(ANN)
        tab.open(f"{url}/quality?{at}")
        tab.wait_for_text("Sign in to see")
        tab.evaluate("document.querySelector('a.go').click()")
        tab.wait_for_text("a secret", seconds=90)
        tab.wait_until_idle(seconds=60)
    with Store.open(mine.url, read_only=True) as store:
        looks = [a for a in store.audit(limit=50) if a.action == "read output text"]
    assert {a.who for a in looks} == {"ann"}
    assert len({a.subject for a in looks}) == len(looks)
