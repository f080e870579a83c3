"""Grafana annotations: an incident is a region from its onset to its end, a deploy is a mark.

What we write carries the tag ``gustfront:<id>``: an annotation whose answer was lost is found by it instead of being made twice,
and what we wrote is not read in again.
"""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import urlencode

from app.delivery.message import Message
from app.delivery.sender import Batch, Item
from app.delivery.transport import Client, SendError, secret_of
from core.config_delivery import GrafanaReceiver

OWN = "gustfront:"


def own_tag(subject: str) -> str:
    """The tag by which an annotation is found again."""
    return f"{OWN}{subject}"


def text_of(m: Message) -> str:
    """The text; Grafana shows it as HTML."""
    head = html.escape(m.headline)
    facts = "<br>".join(html.escape(f"{k}: {v}") for k, v in m.facts if k in ("Where", "Cause"))
    link = f'<br><a href="{html.escape(m.link)}">Open incident</a>' if m.link and m.type == "incident" else ""
    return head + (f"<br>{facts}" if facts else "") + link


def ms(t: float | None) -> int:
    """Unix seconds as whole milliseconds."""
    return round((t or 0.0) * 1000)


class Grafana:
    """One Grafana."""

    groups, limited, hold = False, False, 0.0

    def __init__(self, spec: GrafanaReceiver) -> None:
        self._spec, self._client = spec, Client(spec)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request with our token; the answer's JSON."""
        headers = {"Authorization": f"Bearer {secret_of(None, self._spec.token_file)}"}
        return self._client.call(method, f"{self._spec.url}{path}", body, headers=headers).json()

    def send(self, batch: Batch, at: float) -> str:
        """An annotation for each incident or event; returns the last one's id."""
        reference = ""
        for item in batch.items:
            reference = self._one(item, at)
        return reference

    def _one(self, item: Item, at: float) -> str:
        m = item.message
        body: dict[str, Any] = {
            "time": ms(m.since or at),
            "text": text_of(m),
            "tags": [*self._spec.tags, own_tag(m.subject), *(t for t in (m.kind or m.type, *m.pools) if t)],
        }
        if m.action == "resolve":
            body["timeEnd"] = ms(m.ended_at or at)
        known = item.reference or (self._found(m.subject) if self._maybe_there(item) else "")
        if known and m.action in ("update", "resolve", "open"):
            try:
                self.call("PATCH", f"/api/annotations/{int(known)}", body)
                return known
            except SendError as error:
                if error.status != 404:  # somebody has deleted it: it is made anew
                    raise
        elif known:
            return known
        if self._spec.dashboard:
            body["dashboardUID"] = self._spec.dashboard
        made = self.call("POST", "/api/annotations", body)
        return str(made.get("id", "")) if isinstance(made, dict) else ""

    def _maybe_there(self, item: Item) -> bool:
        return item.delivery.attempts > 0 or item.told is not None

    def _found(self, subject: str) -> str:
        query = urlencode({"tags": own_tag(subject), "limit": 1})
        rows = self.call("GET", f"/api/annotations?{query}")
        first = rows[0] if isinstance(rows, list) and rows else None
        found = first.get("id") if isinstance(first, dict) else None
        return str(found) if isinstance(found, int) else ""
