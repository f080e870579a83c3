"""A small OpenID Connect provider on loopback: discovery, authorization code with PKCE, ID tokens signed by a key of its JWKS.

It asks nobody for a password: whoever comes to ``/authorize`` is the person whose claims are in ``person``.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.app.server import free_port

CLIENT, SECRET = "gustfront", "a client secret of the test"


@dataclass
class Provider:
    """One provider. ``person``: claims of whoever signs in; ``forged``: ID tokens are signed by a key that the JWKS lacks."""

    issuer: str
    redirect_uri: str
    person: dict[str, Any] = field(default_factory=dict)
    forged: bool = False
    asked: list[dict[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}))
    other: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}))
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    async def configuration(self, _: Request) -> Response:
        """Discovery."""
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def jwks(self, _: Request) -> Response:
        """The public key."""
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def authorize(self, request: Request) -> Response:
        """Back to the application with a code, as a provider does once somebody has signed in."""
        asked = dict(request.query_params)
        self.asked.append(asked)
        if asked.get("client_id") != CLIENT or asked.get("redirect_uri") != self.redirect_uri:
            return Response("unknown client", 400)
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        return RedirectResponse(
            f"{self.redirect_uri}?{urlencode({'code': code, 'state': asked['state']})}", 302
        )

    async def token(self, request: Request) -> Response:
        """The code against an ID token, once, for the application that has the secret and the verifier."""
        form = await request.form()
        header = request.headers.get("authorization", "").removeprefix("Basic ")
        basic = base64.b64decode(header).decode() if header else ""
        asked = self._codes.pop(str(form.get("code")), None)
        digest = sha256(str(form.get("code_verifier", "")).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if basic not in (f"{CLIENT}:{SECRET}", f"{CLIENT}:{SECRET.replace(' ', '+')}"):
            self.refused.append("secret")
            return JSONResponse({"error": "invalid_client"}, 401)
        if asked is None or challenge != asked.get("code_challenge"):
            self.refused.append("code")
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked.get("nonce"),
        }
        header_ = {"alg": "RS256", "kid": "one"}
        id_token = jwt.encode(header_, claims | self.person, self.other if self.forged else self.key)
        return JSONResponse(
            {
                "access_token": secrets.token_urlsafe(16),
                "token_type": "Bearer",
                "expires_in": 300,
                "id_token": id_token,
            }
        )


@contextlib.contextmanager
def provider(redirect_uri: str) -> Iterator[Provider]:
    """A provider that knows one application, until the block ends."""
    port = free_port()
    made = Provider(f"http://127.0.0.1:{port}", redirect_uri)
    app = Starlette(
        routes=[
            Route("/.well-known/openid-configuration", made.configuration),
            Route("/jwks", made.jwks),
            Route("/authorize", made.authorize),
            Route("/token", made.token, methods=["POST"]),
        ]
    )
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        yield made
    finally:
        server.should_exit = True
        thread.join(20)
