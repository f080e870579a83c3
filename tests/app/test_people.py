"""Who may do what: roles by rules, scopes of tokens, tokens that are forged, revoked or expired."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from app import auth
from app.gate import host_allowed
from app.limits import RateLimit
from app.oidc import from_claims, safe_next
from app.services import audit, texts, tokens
from app.services.people import (
    RANK,
    SCOPES,
    SENDING,
    Forbidden,
    Identity,
    Principal,
    allow,
    may_read_texts,
    principal_of_identity,
    require,
    role_of,
)
from core.config import Config, parse_config
from core.config_auth import AuthConfig, OidcConfig, ProxyConfig
from core.errors import ConfigError, InputError, StoreError
from core.records import OutputRecord
from sql.store import Store

NOW = 1_790_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'people.db'}") as opened:
        yield opened


def make(store: Store, name: str = "gateway", role: str = "viewer", **more: object) -> str:
    given: dict[str, object] = {"scopes": ["outputs:write"], "made_by": "ann", "expires_at": NOW + 100}
    token, _ = tokens.create(store, name, role=role, now=NOW, **(given | more))  # type: ignore[arg-type]
    return token


# ------------------------------------------------------------------------------------------------------------- roles


@pytest.mark.parametrize(("has", "needs"), list(itertools.product(RANK, RANK)))
def test_admin_may_what_a_responder_may_who_may_what_a_viewer_may(has: str, needs: str) -> None:
    me = Principal("ann", has)  # type: ignore[arg-type]
    if RANK[has] >= RANK[needs]:
        require(me, needs)
    else:
        with pytest.raises(Forbidden, match=f"ann has the role {has}; this needs the role {needs}"):
            require(me, needs)


def test_a_token_needs_its_scope_and_its_role() -> None:
    reader = Principal("token:r", "viewer", frozenset({"incidents:read", "incidents:write"}), "token")
    allow(reader, "viewer", "incidents:read")
    with pytest.raises(Forbidden, match="needs the role responder"):
        allow(reader, "responder", "incidents:write")
    with pytest.raises(Forbidden, match="lacks the scope slo:read"):
        allow(reader, "viewer", "slo:read")
    allow(Principal("token:s", "viewer", SENDING, "token"), "responder", "outputs:write")
    with pytest.raises(Forbidden, match="needs the role responder"):
        allow(Principal("ann", "viewer"), "responder", "outputs:write")


RULES = """
auth:
  mode: proxy
  proxy: {addresses: [10.0.0.0/8]}
  default_role: %s
  roles:
    admin: {emails: [Ann@Example.org]}
    responder: {groups: [on-call], names: [bob]}
    viewer: {domains: ["@example.org"]}
"""


def rules(default: str = "nobody") -> AuthConfig:
    return parse_config(RULES % default).auth


@pytest.mark.parametrize(
    ("who", "role"),
    [
        (Identity("x", "ann@example.ORG", ("on-call",)), "admin"),
        (Identity("x", "carl@example.org", ("on-call", "other")), "responder"),
        (Identity("bob", ""), "responder"),
        (Identity("x", "dora@example.org"), "viewer"),
        (Identity("x", "dora@evil-example.org"), None),
        (Identity("x", "dora@example.org.evil"), None),
        (Identity("Bob", "", ("ON-CALL",)), None),
        (Identity("x", ""), None),
    ],
)
def test_the_highest_rule_that_fits_gives_the_role(who: Identity, role: str | None) -> None:
    assert role_of(who, rules()) == role
    found = principal_of_identity(who, rules())
    assert (found.role if found else None) == role
    assert role_of(who, rules("viewer")) == (role or "viewer")


def test_without_a_rule_a_proxys_people_look_and_a_providers_people_stay_outside() -> None:
    assert AuthConfig(mode="none").otherwise == "admin"
    assert AuthConfig(mode="proxy", proxy=ProxyConfig(addresses=["10.0.0.1"])).otherwise == "viewer"
    provider = "{issuer: 'https://i', client_id: a, client_secret: b, url: 'https://g'}"
    oidc = f"auth: {{mode: oidc, roles: {{viewer: {{domains: [a.b]}}}}, oidc: {provider}}}"
    assert parse_config(oidc).auth.otherwise is None


def test_texts_are_for_the_roles_named_and_for_tokens_with_the_scope() -> None:
    some = AuthConfig(texts=["responder", "admin"])
    assert may_read_texts(Principal("a", "responder"), some)
    assert not may_read_texts(Principal("a", "viewer"), some)
    assert not may_read_texts(Principal("t", "admin", frozenset({"incidents:read"}), "token"), some)
    assert may_read_texts(Principal("t", "admin", frozenset({"texts:read"}), "token"), some)
    assert not may_read_texts(Principal("a", "admin"), AuthConfig(texts=[]))


def test_each_look_at_a_text_is_in_the_audit_log_and_so_is_each_refusal(store: Store) -> None:
    store.add_outputs([OutputRecord("o-1", NOW, NOW - 1, "chat", text="secret words")])
    assert (
        texts.read_text(store, Principal("ann", "admin"), AuthConfig(), "o-1", origin="10.0.0.9")
        == "secret words"
    )
    with pytest.raises(Forbidden, match="texts of outputs are shown to admin"):
        texts.read_text(store, Principal("bob", "viewer"), AuthConfig(), "o-1")
    assert texts.read_text(store, Principal("ann", "admin"), AuthConfig(), "no such") is None
    lines = [(a.who, a.action, a.subject, a.origin, a.allowed) for a in store.audit(limit=9)]
    assert lines == [
        ("bob", "read output text", "o-1", "", False),
        ("ann", "read output text", "o-1", "10.0.0.9", True),
    ]


def test_a_look_that_cannot_be_logged_shows_nothing(store: Store, tmp_path: Path) -> None:
    store.add_outputs([OutputRecord("o-1", NOW, NOW - 1, "chat", text="secret words")])
    with (
        Store.open(f"sqlite:///{tmp_path / 'people.db'}", read_only=True) as reader,
        pytest.raises(StoreError),
    ):
        texts.read_text(reader, Principal("ann", "admin"), AuthConfig(), "o-1")


# ------------------------------------------------------------------------------------------------------------ tokens


def test_a_token_is_shown_once_and_kept_as_the_digest_of_256_random_bits(store: Store) -> None:
    first, second = make(store), make(store, "other")
    row = tokens.verify(store, first, NOW)
    assert row.digest == sha256(first.encode()).hexdigest()
    secret = first.split("_", 2)[2]
    assert len(secret) == 43  # 32 bytes in base64
    assert secret not in second
    with store.database.read() as c:
        kept = str(c.exec_driver_sql("SELECT * FROM tokens").all())
    assert secret not in kept
    assert tokens.shown(row) in first
    assert "digest" not in tokens.as_json(row, NOW)


def test_a_forged_a_revoked_and_an_expired_token_are_not_known(store: Store) -> None:
    token = make(store)
    for forged in (
        token + "x",
        token[:-1],
        "gft_x_y",
        "gft__",
        "",
        "Bearer",
        "gft_" + "a" * 500 + "_b",
        token.upper(),
        "\udcff",
    ):
        with pytest.raises(tokens.BadToken, match="the token is not known"):
            tokens.verify(store, forged, NOW)
    tokens.verify(store, token, NOW + 99.9)
    with pytest.raises(tokens.BadToken, match="expired at"):
        tokens.verify(store, token, NOW + 100)
    tokens.revoke(store, "gateway", "bob", NOW + 1)
    with pytest.raises(tokens.BadToken, match="was revoked at"):
        tokens.verify(store, token, NOW + 2)
    with pytest.raises(InputError, match="is revoked already"):
        tokens.revoke(store, "gateway", "bob")


def test_of_two_tokens_of_one_name_the_id_says_which(store: Store) -> None:
    make(store)
    second = make(store)
    with pytest.raises(InputError, match="several tokens have this name"):
        tokens.revoke(store, "gateway", "bob")
    kept = tokens.verify(store, second, NOW)
    assert tokens.revoke(store, kept.id, "bob").id == kept.id
    with pytest.raises(InputError, match="no token has this id or name"):
        tokens.revoke(store, "nothing", "bob")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"role": "root"}, "--role"),
        ({"scopes": []}, "--scopes"),
        ({"scopes": ["everything"]}, "--scopes"),
        ({"scopes": ["incidents:write"]}, "--role"),
        ({"scopes": ["audit:read"], "role": "responder"}, "--role"),
        ({"expires_at": NOW - 1}, "--expires"),
        ({"name": " "}, "name"),
        ({"name": "a\nb"}, "name"),
    ],
)
def test_a_token_that_could_not_do_what_it_is_for_is_not_made(
    store: Store, more: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        make(store, **more)  # type: ignore[arg-type]
    assert error.value.path == problem
    assert error.value.fix
    assert store.tokens() == []


def test_the_use_of_a_token_is_noted_once_a_minute_and_place(store: Store) -> None:
    token = make(store)
    for at, where in ((NOW, "a"), (NOW + 30, "a"), (NOW + 40, "b"), (NOW + 99, "b")):
        tokens.note_use(store, tokens.verify(store, token, at), where, at)
        row = tokens.verify(store, token, at)
        assert row.last_used_from == where
    assert row.last_used_at == NOW + 40
    tokens.note_use(store, row, "b", NOW + 100)
    assert tokens.verify(store, token, NOW + 1).last_used_at == NOW + 100


@given(st.text(max_size=60))
def test_no_text_is_taken_for_a_token(text: str) -> None:
    found = tokens.token_id(text)
    assert found is None or (text.startswith(f"gft_{found}_") and found.isascii())


def test_every_scope_is_used_by_the_api_or_said_to_be_for_metrics_or_texts() -> None:
    from app.api import endpoints

    used = {e.scope for e in endpoints()} | {
        "outputs:write",
        "outcomes:write",
        "metrics:read",
        "texts:read",
        "",
    }
    assert used - {""} <= set(SCOPES)


# ------------------------------------------------------------------------------------------------- proxies and sign-ins

PROXY = ProxyConfig(addresses=["10.0.0.0/24", "fd00::/8"], secret="0123456789abcdef")
SECRET = {"x-gustfront-proxy": "0123456789abcdef"}
ANN = {
    "x-forwarded-user": "ann",
    "x-forwarded-email": "ann@example.org",
    "x-forwarded-groups": "a, on-call,,",
}


@pytest.mark.parametrize("peer", ["10.0.0.7", "::ffff:10.0.0.7", "fd00::1"])
def test_the_proxy_says_who_it_is(peer: str) -> None:
    who = auth.proxy_identity(Headers(ANN | SECRET), peer, PROXY, NOW)
    assert who == Identity("ann", "ann@example.org", ("a", "on-call"), "proxy", NOW)
    assert auth.proxy_identity(Headers(SECRET), peer, PROXY, NOW) is None
    assert auth.proxy_identity(Headers(SECRET | {"x-forwarded-user": " "}), peer, PROXY, NOW) is None


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("10.0.1.7", ANN | SECRET),
        ("", ANN | SECRET),
        ("10.0.0.7", ANN),
        ("10.0.0.7", ANN | {"x-gustfront-proxy": "0123456789abcdeF"}),
        ("127.0.0.1", {"x-forwarded-email": "ann@example.org"}),
    ],
)
def test_whoever_else_says_so_is_not_believed(peer: str, headers: dict[str, str]) -> None:
    with pytest.raises(auth.Untrusted):
        auth.proxy_identity(Headers(headers), peer, PROXY, NOW)


def test_a_name_given_twice_is_nobodys() -> None:
    raw = [
        (b"x-forwarded-user", b"ann"),
        (b"x-forwarded-user", b"root"),
        (b"x-gustfront-proxy", b"0123456789abcdef"),
    ]
    with pytest.raises(auth.Untrusted, match="given twice"):
        auth.proxy_identity(Headers(raw=raw), "10.0.0.7", PROXY, NOW)


OIDC = OidcConfig(issuer="https://idp", client_id="g", client_secret="s", url="https://g.example")
CLAIMS = {
    "sub": "1",
    "iat": NOW,
    "email": "ann@example.org",
    "email_verified": True,
    "groups": ["on-call", 7],
}


def test_claims_become_an_identity_and_an_unverified_address_counts_for_nothing() -> None:
    assert from_claims(CLAIMS, OIDC, NOW) == Identity(
        "ann@example.org", "ann@example.org", ("on-call",), "oidc", NOW
    )
    assert from_claims(CLAIMS | {"preferred_username": "ann"}, OIDC, NOW) is not None
    for unverified in ({"email_verified": False}, {"email_verified": "true"}, {"email_verified": None}):
        who = from_claims(CLAIMS | unverified, OIDC, NOW)
        assert who is not None
        assert (who.name, who.email) == ("1", "")
    lax = OIDC.model_copy(update={"verified_email": False})
    assert from_claims(CLAIMS | {"email_verified": False}, lax, NOW) == from_claims(CLAIMS, OIDC, NOW)


def test_a_sign_in_ends_after_its_time() -> None:
    assert from_claims(CLAIMS, OIDC, NOW + 12 * 3600 - 1) is not None
    for late in (
        CLAIMS | {"iat": NOW - 12 * 3600},
        CLAIMS | {"iat": None},
        CLAIMS | {"iat": True},
        {"iat": NOW},
    ):
        assert from_claims(late, OIDC, NOW) is None


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "",
        "x",
        "/a\nb",
        "/" + "a" * 3000,
    ],
)
def test_no_link_leads_elsewhere_after_a_sign_in(path: str) -> None:
    assert safe_next(path) == "/"


def test_a_page_with_its_query_is_found_again_after_a_sign_in() -> None:
    assert (
        safe_next("/incident?id=a&as_of=2026-09-21T16:00:00Z") == "/incident?id=a&as_of=2026-09-21T16:00:00Z"
    )


def test_only_this_process_can_say_who_looks_at_a_page() -> None:
    who = Identity("ann", "a@b.c", ("x",), "oidc", NOW, "10.0.0.9")
    value = auth.sealed(who)
    assert auth.opened(value) == who
    body, _, seal = value.partition(".")
    for forged in ("", ".", value + "0", f"{body[:-4]}AAAA.{seal}", f"{body}.", "é.é", value.upper()):
        assert auth.opened(forged) is None


# ---------------------------------------------------------------------------------------------------- hosts and limits

HOSTS: Config = parse_config("app: {hosts: [gust.example.org], origins: ['https://front.example.org']}")


@pytest.mark.parametrize(
    ("host", "ok"),
    [
        ("127.0.0.1:8501", True),
        ("[::1]:8501", True),
        ("192.168.1.7", True),
        ("localhost", True),
        ("LOCALHOST.:8501", True),
        ("app.localhost", True),
        ("gust.example.org", True),
        ("Gust.Example.org:443", True),
        ("front.example.org", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("gust.example.org.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("user@localhost", False),
        ("localhost/x", False),
        ("localhost:99999", False),
        ("", False),
    ],
)
def test_a_name_that_nobody_configured_may_be_a_foreign_pages(host: str, ok: bool) -> None:
    assert host_allowed(host, HOSTS) is ok


@given(st.text(max_size=40))
def test_any_host_is_judged_without_an_accident(host: str) -> None:
    host_allowed(host, HOSTS)


def test_a_sender_has_a_minutes_worth_at_once_and_then_its_share() -> None:
    limit = RateLimit()
    assert [limit.take("a", 60, 0.0) for _ in range(60)] == [0] * 60
    assert limit.take("a", 60, 0.0) == 1
    assert limit.take("b", 60, 0.0) == 0
    assert limit.take("a", 60, 1.0) == 0
    assert limit.take("a", 60, 1.0) == 1
    assert limit.take("a", 1, 2.0) in range(1, 61)


def test_senders_that_are_not_seen_any_more_are_forgotten() -> None:
    limit = RateLimit()
    for i in range(10_050):
        limit.take(str(i), 60, float(i))
    assert len(limit._left) == 10_000


def test_an_act_is_logged_with_who_what_and_from_where(store: Store) -> None:
    audit.record(
        store, Principal("ann", "responder", None, "oidc"), "acknowledge", "inc-1", origin="10.0.0.9", at=NOW
    )
    (row,) = store.audit(limit=5)
    told = audit.as_json(row)
    assert (told["who"], told["role"], told["via"], told["action"], told["subject"], told["origin"]) == (
        "ann",
        "responder",
        "oidc",
        "acknowledge",
        "inc-1",
        "10.0.0.9",
    )
    assert told["at"] == "2026-09-21T14:13:20Z"
