"""Alertmanager, API v2. An alert is an incident; it is sent again while it fires, since Alertmanager forgets what nobody repeats,
and ended with ``endsAt`` when it is over.

Labels identify an alert. Kind and severity are labels, because routes and silences need them: where one of them changes, the
alert with the old labels is ended in the same request that fires the new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.delivery.message import Message
from app.delivery.sender import Batch, Item, item_of
from app.delivery.transport import Client, secret_of
from core.config_delivery import AlertmanagerReceiver
from core.deliveries import Delivery
from core.incidents import iso

ALERT, WATCHDOG = "GustfrontIncident", "GustfrontWatchdog"
EXPIRE = 4.0
"""An alert that is not sent again ends after so many resends."""


def labels_of(m: Message, more: dict[str, str]) -> dict[str, str]:
    """The labels of an alert; a pool or class only where it is one, since those of an incident may grow."""
    own = {
        "alertname": "GustfrontTest" if m.type == "test" else ALERT,
        "incident": m.subject,
        "kind": m.kind,
        "severity": m.severity,
        "pool": ",".join(m.pools),
        "class": ",".join(m.classes),
    }
    return {**more, **{k: v for k, v in own.items() if v}}


def annotations_of(m: Message) -> dict[str, str]:
    """What people read."""
    rows = {"summary": m.title, "description": "\n".join(f"{k}: {v}" for k, v in m.facts)}
    for key in ("where", "cause", "first"):
        rows[key] = str(getattr(m, key))
    return {k: v for k, v in rows.items() if v}


def alert_of(m: Message, labels: dict[str, str], starts: float, ends: float) -> dict[str, Any]:
    """One alert of the API."""
    alert: dict[str, Any] = {
        "labels": labels,
        "annotations": annotations_of(m),
        "startsAt": iso(round(min(starts, ends), 3)),
        "endsAt": iso(round(ends, 3)),
    }
    return {**alert, "generatorURL": m.link} if m.link else alert


class Alertmanager:
    """One Alertmanager; ``hold`` keeps the end of a short incident back until it was told of."""

    groups, limited = True, False

    def __init__(self, spec: AlertmanagerReceiver) -> None:
        self._spec, self._client = spec, Client(spec)
        self.hold = float(spec.resolve_after)
        self._beating_since = 0.0

    def send(self, batch: Batch, at: float) -> str:
        """All alerts of the batch in one request."""
        self._post([a for i in batch.items for a in self._alerts(i, at)])
        return ""

    def resend(self, told: Iterable[Delivery], at: float) -> int:
        """Everything that fires, once more; returns how many alerts."""
        alerts = [self._firing(item_of(d).message, at) for d in told if d.action in ("open", "update")]
        if alerts:
            self._post(alerts)
        return len(alerts)

    def heartbeat(self, at: float) -> None:
        """The alert that fires while all parts live; route it to a service that notices when it stops."""
        every = float(self._spec.heartbeat or self._spec.resend)
        self._beating_since = min(self._beating_since or at, at)
        self._post(
            [
                {
                    "labels": {**self._spec.labels, "alertname": WATCHDOG, "severity": "none"},
                    "annotations": {"summary": "Gustfront collects, detects and delivers"},
                    # without it Alertmanager takes the end for the start
                    "startsAt": iso(round(self._beating_since, 3)),
                    "endsAt": iso(round(at + EXPIRE * every, 3)),
                }
            ]
        )

    def _firing(self, m: Message, at: float) -> dict[str, Any]:
        ends = at + EXPIRE * float(self._spec.resend)
        return alert_of(m, labels_of(m, self._spec.labels), m.detected_at or m.since or at, ends)

    def _alerts(self, item: Item, at: float) -> list[dict[str, Any]]:
        m = item.message
        if m.action == "test":
            return [alert_of(m, labels_of(m, self._spec.labels), at, at + 60.0)]
        out = []
        before = item_of(item.told).message if item.told is not None else None
        ended = before is not None and before.action != "resolve"
        old = labels_of(before, self._spec.labels) if before is not None and ended else None
        mine = labels_of(m, self._spec.labels)
        if before is not None and old is not None and (m.action == "resolve" or old != mine):
            starts = before.detected_at or before.since or at
            out.append(alert_of(m if m.action == "resolve" else before, old, starts, at))
        elif m.action == "resolve":
            out.append(alert_of(m, mine, m.detected_at or m.since or at, at))
        if m.action != "resolve":
            out.append(self._firing(m, at))
        return out

    def _post(self, alerts: list[dict[str, Any]]) -> None:
        spec = self._spec
        headers = {"Authorization": f"Bearer {secret_of(None, spec.token_file)}"} if spec.token_file else {}
        auth = (spec.username, secret_of(None, spec.password_file)) if spec.username is not None else None
        self._client.call("POST", f"{spec.url}/api/v2/alerts", alerts, headers=headers, auth=auth)
