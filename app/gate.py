"""The gate that every request and WebSocket passes before anything else: is this server meant (Host), does it come from here
(proxies), who is it (token, proxy, sign-in), is it a foreign web page (Origin), is it too much. What does not pass is answered
here, in the API's one error shape, or as a page for people.
"""

from __future__ import annotations

import ipaddress
import time
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import auth, oidc
from app.api_parts import error_response
from app.gate_pages import refusal_page, sign_in_page
from app.limits import RateLimit
from app.services import tokens
from app.services.people import LOCAL, Identity, Principal, principal_of_identity
from app.storage import configuration, shared_store, writing_store
from core.config import Config
from core.errors import ConfigError, GustfrontError, StoreError
from sql.people import TokenRow

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths for machines that keep this one alive: they say nothing worth protecting."""
SIGNED = "/api/v1/webhooks/github"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SIGNED, SIGNATURE = "/api/v1/webhooks/github", "x-hub-signature-256"
"""What GitHub sends is signed with a secret of this installation, which stands in for a token."""
INTAKE = ("/api/v1/outputs", "/api/v1/outcomes", "/api/v1/otlp/")


class Refusal(Exception):
    """A request that does not pass, with its HTTP status."""

    def __init__(self, status: int, code: str, message: str, fix: str = "", **headers: str) -> None:
        self.status, self.code, self.message, self.fix = status, code, message, fix
        self.headers = headers
        super().__init__(message)


class Gate:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._limit = RateLimit()
        self._good: Config | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        # Starlette puts a new list into the scope whenever headers are made from it: never keep one of these.
        del MutableHeaders(scope=scope)[auth.HEADER]
        config = self._config()
        request = HTTPConnection(scope)
        scope[auth.ORIGIN] = _origin(request, config)
        try:
            found = await self._pass(request, config)
        except Refusal as error:
            await _refuse(error, scope, receive, send)
            return
        if isinstance(found, Response):
            await _answer(found, scope, receive, send)
            return
        if found is not None:
            principal, who = found
            scope[auth.PRINCIPAL] = principal
            MutableHeaders(scope=scope)[auth.HEADER] = auth.sealed(replace(who, origin=scope[auth.ORIGIN]))
        await self.app(scope, receive, _secure_cookies(send) if _https(config) else send)

    def _config(self) -> Config:
        """The configuration in force; a file that has become wrong changes nothing about who may come in."""
        try:
            self._good = configuration()
        except ConfigError:
            self._good = self._good or Config.built_in()
        return self._good

    async def _pass(
        self, request: HTTPConnection, config: Config
    ) -> tuple[Principal, Identity] | Response | None:
        path = request.url.path
        if path in OPEN:
            return None
        token = auth.bearer(request.headers)
        if token is not None and (path.startswith("/api/") or path == "/metrics"):
            row = await self._token(token, request, config)
            if row is not None:
                self._count(row.name, path, config)
                return row, Identity(row.name, via="token")
        if path == SIGNED and config.webhooks.github_secret_file and SIGNATURE in request.headers:
            self._count(_peer(request), path, config)
            return None  # the signature over the body says who it is; app.api_events checks it and takes nothing unsigned
        # From here on nothing but the way it came says who it is: an address, a proxy, a cookie that a browser adds by itself.
        _check_host(request.headers, config)
        if path == SIGNED and config.webhooks.github_secret_file is not None:
            self._count(_peer(request), path, config)
            return None  # who it is, its signature says: app.api_events takes nothing there without one
        found = self._who(request, config)
        if path in oidc.OPEN_PATHS and config.auth.mode == "oidc":
            return None
        _check_origin(request, config)
        if isinstance(found, Refusal):
            self._count(_peer(request), path, config)
            raise found
        principal, _ = found
        self._count(f"{principal.name} {_peer(request)}", path, config)
        if path == "/" and config.auth.mode == "oidc" and request.scope["type"] == "http":
            wanted = oidc.next_page(request.cookies)
            if wanted is not None:
                response = RedirectResponse(wanted, 302)
                response.delete_cookie(oidc.NEXT)
                return response
        return found

    async def _token(self, token: str, request: HTTPConnection, config: Config) -> Principal | None:
        """The principal of a bearer token; None where it may be meant for the proxy in front. Refusal (401, 503)."""
        if tokens.digest_among(token, config.intake.tokens):
            return Principal("intake", "viewer", frozenset({"outputs:write", "outcomes:write"}), "token")
        if tokens.token_id(token) is None and config.auth.mode == "proxy":
            return None
        try:
            row = await anyio.to_thread.run_sync(_verified, token, _peer(request))
        except tokens.BadToken as error:
            wait = self._limit.take(f"bad {_peer(request)}", 60, time.monotonic())
            if wait:
                raise _too_much(wait) from None
            raise Refusal(
                401,
                "bad_token",
                str(error),
                "make one: gustfront tokens create NAME --scopes …",
                **{"WWW-Authenticate": 'Bearer error="invalid_token"'},
            ) from None
        except GustfrontError as error:
            raise Refusal(503, "store_unavailable", str(error), **{"Retry-After": "5"}) from None
        return tokens.principal(row)

    def _who(self, request: HTTPConnection, config: Config) -> tuple[Principal, Identity] | Refusal:
        rules, peer = config.auth, _peer(request)
        if rules.mode == "none":
            refused = _not_local(request, config)
            if refused is not None:
                return refused
            if rules.otherwise is None:
                return Refusal(
                    403, "forbidden", "auth.default_role is nobody", "set auth.mode to proxy or oidc"
                )
            return auth.local(rules.otherwise), Identity(LOCAL.name, via="local", since=time.time())
        if rules.mode == "proxy" and rules.proxy is not None:
            try:
                who = auth.proxy_identity(request.headers, peer, rules.proxy, time.time())
            except auth.Untrusted as error:
                fix = "reach this server through the proxy; or correct auth.proxy.addresses or secret"
                return Refusal(403, "untrusted_proxy", str(error), fix)
            if who is None:
                return Refusal(
                    401, "not_signed_in", "the proxy does not say who you are", "reach it through the proxy"
                )
        else:
            who = oidc.identity(request.cookies, rules.oidc, time.time()) if rules.oidc else None
            if who is None:
                return Refusal(401, "not_signed_in", "nobody is signed in", "sign in, or send an API token")
        principal = principal_of_identity(who, rules)
        if principal is None:
            fix = "ask an admin of this installation for a role (auth.roles)"
            return Refusal(403, "no_role", f"{who.name} is signed in, but no rule gives a role", fix)
        return principal, who

    def _count(self, key: str, path: str, config: Config) -> None:
        """Refusal (429) for too many requests of the API; what is sent in bulk has limits of its own."""
        if path.startswith("/api/") and not path.startswith(INTAKE):
            wait = self._limit.take(key, config.app.requests_per_minute, time.monotonic())
            if wait:
                raise _too_much(wait)


def _too_much(wait: int) -> Refusal:
    fix = f"try again in {wait} s, or raise app.requests_per_minute"
    return Refusal(429, "too_many_requests", "too many requests", fix, **{"Retry-After": str(wait)})


def _verified(token: str, peer: str) -> TokenRow:
    row = tokens.verify(shared_store(), token)
    with suppress(StoreError):  # that it was used is worth a note, not worth refusing what it may
        tokens.note_use(writing_store(), row, peer)
    return row


def _peer(request: HTTPConnection) -> str:
    return request.client.host if request.client is not None else ""


def _origin(request: HTTPConnection, config: Config) -> str:
    """Where a request comes from, for the audit log: the address, and what the trusted proxy says stands behind it."""
    peer = _peer(request)
    last = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    proxy = config.auth.proxy
    if proxy is not None and last and auth.from_proxy(request.headers, peer, proxy):
        return f"{last[:64]} via {peer}"
    return peer


def _https(config: Config) -> bool:
    return config.auth.oidc is not None and config.auth.oidc.url.startswith("https:")


def host_allowed(host: str, config: Config) -> bool:
    """Whether a Host names this server: an address, localhost, or a name from the configuration. Any other name may be a foreign
    page's, pointed at this address (DNS rebinding)."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return False
    if not name or parts.username is not None or parts.path or parts.query or parts.fragment:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        return True
    known = {h.lower().rstrip(".") for h in (*config.app.hosts, config.app.host)}
    known |= {urlsplit(u).hostname or "" for u in config.app.origins}
    if config.auth.oidc is not None:
        known.add(urlsplit(config.auth.oidc.url).hostname or "")
    return name == "localhost" or name.endswith(".localhost") or name in known


def _check_host(headers: Headers, config: Config) -> None:
    host = headers.get("host", "")
    if not host_allowed(host, config):
        shown = host[:80] or "(none)"
        raise Refusal(
            403, "foreign_host", f"this server is not known as {shown!r}", "add the name to app.hosts"
        )


def _check_origin(request: HTTPConnection, config: Config) -> None:
    """A web page of another origin may neither write nor open the WebSocket with what its visitor may."""
    socket = request.scope["type"] == "websocket"
    if not socket and request.scope.get("method", "GET") in SAFE_METHODS:
        return
    origin = request.headers.get("origin")
    if origin is None:
        if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return
    else:
        allowed = {oidc.origin(u) for u in config.app.origins}
        if config.auth.oidc is not None:
            allowed.add(oidc.origin(config.auth.oidc.url))
        if origin in allowed or urlsplit(origin).netloc == request.headers.get("host"):
            return
    shown = (origin or "another site")[:80]
    raise Refusal(
        403,
        "foreign_origin",
        f"a page of {shown} may not do this",
        "open these pages under their own address, or add it to app.origins",
    )


def _not_local(request: HTTPConnection, config: Config) -> Refusal | None:
    if config.app.insecure_listen:
        return None
    via = next((h for h in auth.FORWARDED if h in request.headers), None)
    if via is None and auth.is_loopback(_peer(request)):
        return None
    how = f"it came through a proxy ({via})" if via else f"it came from {_peer(request) or 'elsewhere'}"
    return Refusal(
        401 if request.url.path.startswith(INTAKE) else 403,
        "no_token" if request.url.path.startswith(INTAKE) else "not_local",
        f"without auth this server is for its own machine only, and {how}",
        "send an API token, or set auth.mode to proxy or oidc; or allow everybody: app.insecure_listen: true",
    )


async def _refuse(error: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await _answer(Response(status_code=403), scope, receive, send)
        return
    path, headers = scope["path"], Headers(scope=scope)
    if path.startswith("/api") or path == "/metrics" or "text/html" not in headers.get("accept", ""):
        if error.status == 401:
            error.headers.setdefault("WWW-Authenticate", "Bearer")
        await _answer(
            error_response(error.status, error.code, error.message, error.fix, **error.headers),
            scope,
            receive,
            send,
        )
        return
    page: Response
    if error.code == "not_signed_in" and error.message.startswith("nobody"):
        query = scope.get("query_string", b"").decode("latin-1")
        page = sign_in_page(f"{path}?{query}" if query else path)
    else:
        page = refusal_page(error.status, error.message, error.fix, leave=error.code == "no_role")
    await _answer(page, scope, receive, send)


async def _answer(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await response(scope, receive, send)


def _secure_cookies(send: Send) -> Send:
    """Cookies of pages that are reached by https are never sent over http."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (k, v + b"; Secure") if k.lower() == b"set-cookie" and b"secure" not in v.lower() else (k, v)
                for k, v in message["headers"]
            ]
        await send(message)

    return marked
