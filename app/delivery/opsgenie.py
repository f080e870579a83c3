"""Opsgenie, alert API v2: create with the incident as alias, note and priority when it changes, close when it is over."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from app.delivery.message import Message
from app.delivery.sender import Batch, Item
from app.delivery.transport import Client, secret_of
from core.config_delivery import OpsgenieReceiver

PRIORITY = {"page": "P1", "ticket": "P3", "info": "P5"}


def alias_of(subject: str) -> str:
    """The same for all that is said of one incident."""
    return f"gustfront-{subject}"


def alert_of(m: Message, spec: OpsgenieReceiver) -> dict[str, Any]:
    """The body that creates an alert."""
    body: dict[str, Any] = {
        "message": m.headline[:130],
        "alias": alias_of(m.subject),
        "description": "\n".join([m.headline, *(f"{k}: {v}" for k, v in m.facts), m.link])[:15000],
        "priority": PRIORITY[m.severity],
        "source": "gustfront",
        "entity": m.where[:512],
        "tags": [*spec.tags, m.kind or m.type][:20],
        "details": {"incident": m.subject, "kind": m.kind, "pools": ", ".join(m.pools), "link": m.link},
    }
    if spec.responders:
        body["responders"] = [{"name": name, "type": "team"} for name in spec.responders]
    return body


class Opsgenie:
    """One integration."""

    groups, limited, hold = False, True, 0.0

    def __init__(self, spec: OpsgenieReceiver) -> None:
        self._spec, self._client = spec, Client(spec)

    def send(self, batch: Batch, at: float) -> str:
        """Requests for each incident; each may be sent again without harm."""
        for item in batch.items:
            self._one(item)
        return ""

    def _one(self, item: Item) -> None:
        m = item.message
        if m.action in ("open", "test") or (item.told is None and m.action == "update"):
            self._call("POST", "/v2/alerts", alert_of(m, self._spec))
            if m.action == "test":
                self._close(m)
        elif m.action == "update":
            self._call("PUT", f"{self._path(m)}/priority", {"priority": PRIORITY[m.severity]}, m)
            self._call("PUT", f"{self._path(m)}/message", {"message": m.headline[:130]}, m)
            self._call("POST", f"{self._path(m)}/notes", {"note": m.before or m.headline}, m)
        else:
            self._close(m)

    def _close(self, m: Message) -> None:
        note = dict(m.facts).get("Until", "over")
        self._call("POST", f"{self._path(m)}/close", {"source": "gustfront", "note": note}, m)

    def _path(self, m: Message) -> str:
        return f"/v2/alerts/{quote(alias_of(m.subject), safe='')}"

    def _call(self, method: str, path: str, body: dict[str, Any], m: Message | None = None) -> None:
        key = secret_of(self._spec.api_key, self._spec.api_key_file)
        query = "?identifierType=alias" if m is not None else ""
        self._client.call(
            method, f"{self._spec.url}{path}{query}", body, headers={"Authorization": f"GenieKey {key}"}
        )
