"""From a request to a principal: who sends it, told by an API token, a trusted proxy's headers or a sign-in, never by the sender.

:class:`app.gate.Gate` asks once per request or WebSocket and leaves the answer in the scope, where :func:`principal_of` finds it.
Pages get it as a header that only this process can write (:func:`sealed`, :func:`opened`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from app.services.people import LOCAL, Forbidden, Identity, Principal
from core.config_auth import ProxyConfig

PRINCIPAL, ORIGIN = "gustfront.principal", "gustfront.origin"
"""Keys of the scope."""
HEADER = "x-gustfront-identity"
"""Header in which pages find who looks; whatever a client sends under this name is thrown away."""
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_KEY = secrets.token_bytes(32)


class Untrusted(Exception):
    """A request claims to come from the proxy and does not."""


def principal_of(request: HTTPConnection) -> Principal:
    """The principal of a request that passed the gate; Forbidden where none did."""
    known = request.scope.get(PRINCIPAL)
    if not isinstance(known, Principal):
        raise Forbidden("nobody is signed in")
    return known


def origin_of(request: HTTPConnection) -> str:
    """The address a request came from, for the audit log."""
    return str(request.scope.get(ORIGIN, ""))


def local(role: str) -> Principal:
    """Whoever is here where there is no authentication."""
    return LOCAL if role == LOCAL.role else Principal(LOCAL.name, role)  # type: ignore[arg-type]


def proxy_identity(headers: Headers, peer: str, proxy: ProxyConfig, now: float) -> Identity | None:
    """Who the proxy says it is; None where the proxy names nobody. Untrusted where somebody else than the proxy says it."""
    claims = any(h in headers for h in (proxy.user_header, proxy.email_header, proxy.groups_header))
    trusted = from_proxy(headers, peer, proxy)
    if not trusted:
        if claims:
            raise Untrusted(f"{peer or 'the sender'} is not the proxy that this server trusts")
        return None
    # A header given twice could be the client's beside the proxy's: then nobody knows which is true.
    for name in (proxy.user_header, proxy.email_header, proxy.groups_header):
        if len(headers.getlist(name)) > 1:
            raise Untrusted(f"{name} is given twice")
    name = headers.get(proxy.user_header, "").strip()
    if not name or not name.isprintable():
        return None
    groups = tuple(g.strip() for g in headers.get(proxy.groups_header, "").split(",") if g.strip())
    return Identity(name[:200], headers.get(proxy.email_header, "").strip()[:200], groups, "proxy", now)


def from_proxy(headers: Headers, peer: str, proxy: ProxyConfig) -> bool:
    """Whether a request comes from the trusted proxy: its address and its secret, as far as they are configured."""
    if proxy.addresses and not is_within(peer, proxy.addresses):
        return False
    if proxy.secret:
        given = headers.get(proxy.secret_header, "").encode("utf-8", "surrogatepass")
        return hmac.compare_digest(given, proxy.secret.encode())
    return True


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether an address lies in one of the networks; IPv4 written as IPv6 is IPv4."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return any(ip in ipaddress.ip_network(n, strict=False) for n in networks)


def is_loopback(address: str) -> bool:
    """Whether an address is this machine itself."""
    return is_within(address, ("127.0.0.0/8", "::1/128"))


def bearer(headers: Headers) -> str | None:
    """The bearer token of a request, None without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def sealed(who: Identity) -> str:
    """An identity as a header value that only this process can make."""
    body = base64.urlsafe_b64encode(json.dumps(asdict(who)).encode()).decode()
    return f"{body}.{_seal(body)}"


def opened(value: str) -> Identity | None:
    """The identity that :func:`sealed` put there; None for anything else."""
    body, _, seal = value.partition(".")
    if hmac.compare_digest(_seal(body).encode(), seal.encode("utf-8", "surrogatepass")):
        with suppress(ValueError, TypeError, binascii.Error):
            data = json.loads(base64.urlsafe_b64decode(body))
            return Identity(**{**data, "groups": tuple(data["groups"])})
    return None


def _seal(body: str) -> str:
    return hmac.new(_KEY, body.encode("utf-8", "surrogatepass"), sha256).hexdigest()
