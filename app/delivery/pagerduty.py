"""PagerDuty, Events API v2: trigger, acknowledge in its own place, resolve; one alert an incident by its dedup key."""

from __future__ import annotations

from typing import Any

from app.delivery.message import Message
from app.delivery.sender import Batch, Item
from app.delivery.transport import Client, secret_of
from core.config_delivery import PagerDutyReceiver
from core.incidents import iso

SEVERITY = {"page": "critical", "ticket": "warning", "info": "info"}


def dedup_key(subject: str) -> str:
    """The same for all that is said of one incident."""
    return f"gustfront/{subject}"


def details(m: Message) -> dict[str, str]:
    """What the alert shows below its summary."""
    return dict(m.facts)


def event_of(item: Item, key: str) -> dict[str, Any]:
    """One event; an update triggers again with the same key, which renews what the alert shows."""
    m = item.message
    resolve = m.action == "resolve"
    body: dict[str, Any] = {
        "routing_key": key,
        "event_action": "resolve" if resolve else "trigger",
        "dedup_key": dedup_key(m.subject),
    }
    if resolve:
        return body
    payload = {
        "summary": m.headline[:1024],
        "source": (m.where or "gustfront")[:255],
        "severity": SEVERITY[m.severity],
        "timestamp": iso(m.detected_at or m.since),
        "component": ", ".join(m.pools)[:255],
        "group": ", ".join(m.classes)[:255],
        "class": m.kind or m.type,
        "custom_details": details(m),
    }
    body["payload"] = {k: v for k, v in payload.items() if v}
    body["client"] = "Gustfront"
    if m.link:
        body["client_url"] = m.link
        body["links"] = [{"href": m.link, "text": "Open incident"}]
    return body


class PagerDuty:
    """One integration."""

    groups, limited, hold = False, True, 0.0

    def __init__(self, spec: PagerDutyReceiver) -> None:
        self._spec, self._client = spec, Client(spec)

    def send(self, batch: Batch, at: float) -> str:
        """One event an incident."""
        spec = self._spec
        key = secret_of(spec.routing_key, spec.routing_key_file)
        reference = ""
        for item in batch.items:
            event = event_of(item, key)
            reply = self._client.call("POST", f"{spec.url}/v2/enqueue", event)
            if item.message.action == "test":
                ended = {k: event[k] for k in ("routing_key", "dedup_key")}
                self._client.call("POST", f"{spec.url}/v2/enqueue", {**ended, "event_action": "resolve"})
            told = reply.json()
            reference = str(told.get("dedup_key", "")) if isinstance(told, dict) else ""
        return reference
