"""Any HTTP endpoint: JSON, signed with HMAC-SHA256 over the time and the body, so that the other side can tell that it is ours
and fresh. ``Gustfront-Signature: t=1790000000,v1=<hex of HMAC-SHA256(key, "1790000000." + body)>``.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any

import orjson

from app.delivery.sender import Batch, summary
from app.delivery.transport import Client, secret_of
from core.config_delivery import WebhookReceiver
from core.incidents import iso

VERSION = 1


def signature(key: str, at: int, body: bytes) -> str:
    """The value of ``Gustfront-Signature``."""
    made = hmac.new(key.encode(), f"{at}.".encode() + body, sha256).hexdigest()
    return f"t={at},v1={made}"


def verified(key: str, header: str, body: bytes, now: float, tolerance: float = 300.0) -> bool:
    """What the other side does: whether the signature is ours and not older than ``tolerance`` seconds."""
    parts = dict(p.split("=", 1) for p in header.split(",") if "=" in p)
    text = parts.get("t", "")
    if not text.isascii() or not text.isdigit() or abs(now - int(text)) > tolerance:
        return False
    return hmac.compare_digest(signature(key, int(text), body), f"t={text},v1={parts.get('v1', '')}")


def payload(batch: Batch, at: float) -> dict[str, Any]:
    """The body: ``items`` each with the id of its delivery, which stays the same when it is sent again."""
    return {
        "version": VERSION,
        "type": "digest" if batch.digest else "group" if len(batch.items) > 1 else "single",
        "summary": summary(batch.items),
        "sent_at": iso(round(at, 3)),
        "items": [
            {
                "delivery": i.delivery.id,
                "sequence": i.delivery.seq,
                "attempt": i.delivery.attempts + 1,
                **i.message.as_json(),
            }
            for i in batch.items
        ],
    }


class Webhook:
    """A generic endpoint."""

    groups, limited, hold = True, True, 0.0

    def __init__(self, spec: WebhookReceiver) -> None:
        self._spec, self._client = spec, Client(spec)

    def send(self, batch: Batch, at: float) -> str:
        """One signed POST."""
        self._post(payload(batch, at), at, batch.id)
        return ""

    def heartbeat(self, at: float) -> None:
        """All parts live."""
        self._post({"version": VERSION, "type": "heartbeat", "sent_at": iso(round(at, 3))}, at, "")

    def _post(self, body: Any, at: float, key: str) -> None:
        spec = self._spec
        raw = orjson.dumps(body)
        headers = {"Gustfront-Delivery": key} if key else {}
        if spec.token_file:
            headers["Authorization"] = f"Bearer {secret_of(None, spec.token_file)}"
        if spec.secret_file:
            headers["Gustfront-Signature"] = signature(secret_of(None, spec.secret_file), int(at), raw)
        self._client.call("POST", spec.url, raw=raw, headers=headers)
