"""Two pages that need no script and no sign-in: sign in, and why somebody may not come in."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from starlette.responses import HTMLResponse

from app import oidc

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0;min-height:100vh;display:grid;place-items:center}
body{background:#f4f6fa;color:#111a2e}
main{background:#fff;border:1px solid #dfe4ee;border-radius:8px;padding:32px 36px;max-width:30rem;margin:16px}
h1{font-size:20px;margin:0 0 8px}p{margin:0 0 16px;overflow-wrap:anywhere}
a.go{display:inline-block;background:#2457d6;color:#fff;text-decoration:none;padding:8px 16px;border-radius:6px;font-weight:600}
a.go:focus-visible{outline:3px solid #8fb0ff;outline-offset:2px}
@media(prefers-color-scheme:dark){body{background:#0e1524;color:#e8edf7}main{background:#182236;border-color:#2a3650}}
"""


def _page(title: str, body: str, status: int) -> HTMLResponse:
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · Gustfront</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


def sign_in_page(wanted: str) -> HTMLResponse:
    """A link to the provider, which comes back to the page that was ``wanted``."""
    target = escape(f"{oidc.LOGIN}?next={quote(oidc.safe_next(wanted), safe='')}")
    return _page(
        "Gustfront",
        f'<p>Sign in to see what the fleet does and what is wrong with it.</p><a class="go" href="{target}">Sign in</a>',
        401,
    )


def refusal_page(status: int, message: str, fix: str, *, leave: bool = False) -> HTMLResponse:
    """Why not, and what helps; ``leave`` offers to sign in as somebody else."""
    again = f'<a class="go" href="{oidc.LOGOUT}">Sign out</a>' if leave else ""
    sentence = f"{message[:1].upper()}{message[1:]}."
    advice = f"<p>{escape(fix[:1].upper() + fix[1:])}.</p>" if fix else ""
    return _page("No entry", f"<p>{escape(sentence)}</p>{advice}{again}", status)
