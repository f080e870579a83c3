"""Grafana annotations of people and pipelines, read in as events; ours are left out, and each is taken once."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from app.delivery.grafana import OWN, Grafana
from app.delivery.message import clean
from core.config_delivery import GrafanaReceiver, ReceiverConfig
from core.records import Event
from sql.store import Store

BACK_S = 3600.0
MOST = 1000
KINDS = ("deploy", "release", "rollback", "flag", "scale", "config", "maintenance")
_TAG = re.compile(r"<[^>]{0,500}>")


def event_of(row: Mapping[str, Any], receiver: str, pools: frozenset[str]) -> Event | None:
    """The event in one annotation; None for one of ours, of an alert rule, or without a time.

    A tag that is a kind of event (deploy, flag, ...) gives the kind, one that is a pool (or ``pool:name``) the place.
    """
    given = row.get("tags")
    tags = [t for t in given if isinstance(t, str)] if isinstance(given, list) else []
    at, key = row.get("time"), row.get("id")
    if any(t.startswith(OWN) for t in tags) or row.get("alertId") or not isinstance(key, int):
        return None
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at < 4e12:
        return None
    kind = next((t for t in tags if t in KINDS), "note")
    named = next((t.removeprefix("pool:") for t in tags if t.startswith("pool:")), "")
    pool = named or next((t for t in tags if t in pools), "")
    text = clean(" ".join(html.unescape(_TAG.sub(" ", str(row.get("text") or ""))).split()), 500)
    data = {"delivery": f"grafana/{receiver}/{key}", "tags": tags[:20]}
    return Event(float(at) / 1000.0, kind, text, clean(pool, 200), source="grafana", data=data)


class Annotations:
    """The reader of one Grafana."""

    def __init__(self, grafana: Grafana, receiver: ReceiverConfig, store: Store) -> None:
        assert isinstance(receiver.spec, GrafanaReceiver)
        self._grafana, self._name, self._spec, self._store = grafana, receiver.name, receiver.spec, store

    def read(self, now: float) -> int:
        """Take what is new of the last hour; returns how many. Raises SendError."""
        query = [("from", str(round((now - BACK_S) * 1000))), ("to", str(round((now + 60) * 1000)))]
        query += [("limit", str(MOST)), ("type", "annotation"), *(("tags", t) for t in self._spec.read_tags)]
        rows = self._grafana.call("GET", f"/api/annotations?{urlencode(query)}")
        pools = frozenset(t.target.pool for t in self._store.targets() if t.target.pool)
        found = [
            e
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, dict) and (e := event_of(row, self._name, pools)) is not None
        ]
        return self._store.add_events(found) if found else 0
