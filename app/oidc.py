"""Signing in at an OpenID Connect provider, by Streamlit's own ``st.login`` machinery: authorization code with PKCE, ID token
checked against the provider's keys, the person's claims in a signed cookie. Here: its settings from ``auth.oidc``, and the claims
back.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app.services.people import Identity
from core.config_auth import AuthConfig, OidcConfig
from core.errors import EnvironmentProblem

LOGIN, LOGOUT, CALLBACK = "/login", "/auth/logout", "/oauth2callback"
OPEN_PATHS = frozenset({LOGIN, "/auth/login", LOGOUT, CALLBACK})
"""Paths that somebody who is not signed in can reach."""
NEXT = "gustfront_next"
"""Cookie with the page that was asked for before the sign-in."""
_NEXT_SECONDS = 600


def streamlit_secrets(auth: AuthConfig) -> dict[str, Any] | None:
    """What ``st.App(secrets=…)`` takes for ``st.login``; None where people do not sign in here.

    The key that signs cookies is made from the client secret: it needs no setting of its own and outlives a restart.
    EnvironmentProblem where Authlib is missing.
    """
    if auth.mode != "oidc" or auth.oidc is None:
        return None
    if find_spec("authlib") is None:
        raise EnvironmentProblem("auth: mode oidc needs Authlib. Fix: pip install authlib")
    oidc = auth.oidc
    cookie_secret = hmac.new(oidc.client_secret.encode(), b"gustfront cookies", sha256).hexdigest()
    return {
        "auth": {
            "redirect_uri": oidc.url + CALLBACK,
            "cookie_secret": cookie_secret,
            "client_id": oidc.client_id,
            "client_secret": oidc.client_secret,
            "server_metadata_url": f"{oidc.issuer}/.well-known/openid-configuration",
            "client_kwargs": {"scope": oidc.scope},
        }
    }


def identity(cookies: Mapping[str, str], oidc: OidcConfig, now: float) -> Identity | None:
    """Who is signed in, from Streamlit's signed cookie; None where nobody is, or the sign-in is over."""
    from streamlit.auth_util import get_cookie_with_chunks
    from streamlit.web.server.server_util import get_cookie_secret
    from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
    from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

    def one(name: str) -> bytes | None:
        raw = cookies.get(name)
        if raw is None:
            return None
        return decode_signed_value(get_cookie_secret(), name, raw.encode("latin-1", "replace"))

    raw = get_cookie_with_chunks(one, USER_COOKIE_NAME)
    if raw is None:
        return None
    try:
        claims = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(claims, dict) or claims.get("is_logged_in") is not True:
        return None
    if claims.get("origin") != origin(oidc.url):
        return None
    return from_claims(claims, oidc, now)


def from_claims(claims: Mapping[str, Any], oidc: OidcConfig, now: float) -> Identity | None:
    """An identity from the claims of a checked ID token; None where it has no subject or the sign-in is over."""
    since = claims.get("iat")
    if not isinstance(since, (int, float)) or isinstance(since, bool) or now - since >= oidc.session:
        return None
    email = claims.get("email")
    counts = isinstance(email, str) and (claims.get("email_verified") is True or not oidc.verified_email)
    named = (claims.get(oidc.name_claim), email if counts else None, claims.get("sub"))
    name = next((n.strip() for n in named if isinstance(n, str) and n.strip()), "")
    if not name or not name.isprintable():
        return None
    groups = claims.get(oidc.groups_claim)
    listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    return Identity(
        name[:200],
        str(email)[:200] if counts else "",
        tuple(g for g in listed if isinstance(g, str)),
        "oidc",
        float(since),
    )


def origin(url: str) -> str:
    """``https://host:port`` of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def safe_next(path: str) -> str:
    """A path on this server to go to after the sign-in; ``/`` for anything else, so that no link leads elsewhere."""
    parts = urlsplit(path)
    inside = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if inside and not parts.netloc and path.isprintable() and len(path) < 2000 else "/"


async def login(request: Request) -> Response:
    """Remember the page asked for and go to the provider."""
    from streamlit.auth_util import encode_provider_token

    target = safe_next(request.query_params.get("next", "/"))
    response = RedirectResponse(f"/auth/login?provider={quote(encode_provider_token('default'))}", 302)
    secure = request.url.scheme == "https"
    response.set_cookie(
        NEXT, quote(target, safe=""), max_age=_NEXT_SECONDS, httponly=True, samesite="lax", secure=secure
    )
    return response


def next_page(cookies: Mapping[str, str]) -> str | None:
    """The page asked for before the sign-in, None where there was none."""
    return safe_next(unquote(cookies[NEXT])) if NEXT in cookies else None


def routes() -> list[Route]:
    """The route that begins a sign-in; the provider's answer is Streamlit's."""
    return [Route(LOGIN, login)]
