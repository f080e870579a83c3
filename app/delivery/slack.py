"""Slack incoming webhooks: blocks, all texts escaped."""

from __future__ import annotations

from typing import Any

from app.delivery.message import Message
from app.delivery.sender import Batch, summary
from app.delivery.transport import Client, secret_of
from core.config_delivery import SlackReceiver

MOST_IN_FULL = 4
MAX_BLOCKS, MAX_HEADER, MAX_SECTION = 48, 150, 2900
WIDE = ("Cause", "First safe action", "Ruled out", "Its risk", "Avoid", "Why now", "Changed")
_MARKS = str.maketrans({c: f"{c}\u200b" for c in "*_~`"})


def escaped(text: str) -> str:
    """Text that mrkdwn shows as it is: no links, mentions or formatting."""
    out = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return out.translate(_MARKS)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _plain(text: str, limit: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": _cut(text, limit) or "–", "emoji": False}


def _mrkdwn(label: str, text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": _cut(f"*{label}*\n{escaped(text)}", 1900)}


def blocks_of(m: Message) -> list[dict[str, Any]]:
    """Headline, short facts in two columns, long ones below each other, link."""
    out: list[dict[str, Any]] = [{"type": "header", "text": _plain(m.headline, MAX_HEADER)}]
    narrow = [_mrkdwn(k, v) for k, v in m.facts if k not in WIDE]
    if len(m.headline) > MAX_HEADER:
        out.append({"type": "section", "text": _plain(m.headline, MAX_SECTION)})
    if narrow:
        out.append({"type": "section", "fields": narrow[:10]})
    out += [{"type": "section", "text": _mrkdwn(k, v)} for k, v in m.facts if k in WIDE]
    if m.link:
        label = "Open incident" if m.type == "incident" else "Open Gustfront"
        out.append(
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": f"<{m.link.replace('>', '%3E').replace('|', '%7C')}|{label}>",
                },
            }
        )
    return out


def payload(batch: Batch) -> dict[str, Any]:
    """The body of the POST."""
    lines = [i.message for i in batch.items]
    text = escaped(_cut(summary(batch.items), MAX_SECTION))
    if batch.digest or len(lines) > MOST_IN_FULL:
        told = "\n".join(f"• {_cut(m.headline, 200)}" for m in lines[:60])
        more = f"\n… and {len(lines) - 60} more" if len(lines) > 60 else ""
        rest = told + more
        parts = [rest[i : i + MAX_SECTION] for i in range(0, len(rest), MAX_SECTION)]
        return {
            "text": text,
            "blocks": [
                {"type": "header", "text": _plain(summary(batch.items), MAX_HEADER)},
                *({"type": "section", "text": _plain(p, MAX_SECTION)} for p in parts[:10]),
            ],
        }
    blocks: list[dict[str, Any]] = []
    for m in lines:
        blocks += [*([{"type": "divider"}] if blocks else []), *blocks_of(m)]
    return {"text": text, "blocks": blocks[:MAX_BLOCKS]}


class Slack:
    """An incoming webhook."""

    groups, limited, hold = True, True, 0.0

    def __init__(self, spec: SlackReceiver) -> None:
        self._spec, self._client = spec, Client(spec)

    def send(self, batch: Batch, at: float) -> str:
        """One message to the channel."""
        self._client.call("POST", secret_of(self._spec.url, self._spec.url_file), payload(batch))
        return ""
