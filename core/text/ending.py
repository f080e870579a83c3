"""How an output ends: ``truncated``, ``cut_off``, ``fence_open``, ``reasoning_open`` (all soft).

``truncated``: the engine stopped at the length limit. The others need an engine that says it stopped by itself (``stop``,
``eos``, ``end_turn``): ``fence_open``: a code block begins and does not end; ``reasoning_open``: ``<think>`` without its end;
``cut_off``: prose that ends sentences with full stops ends in the middle of one.
"""

from __future__ import annotations

import re

from core.text.view import View

LIMIT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "incomplete"})
STOPPED = frozenset({"stop", "eos", "end_turn", "stop_sequence", "eos_token", "completed"})
ABORTED = frozenset({"abort", "aborted", "cancelled", "canceled", "client_disconnect", "disconnect", "error"})
"""Words of engines and gateways for: the limit, the model itself, somebody who left."""
_SENTENCE = re.compile(r"[.!?。！？][\"'”’)*_]*(?:\s|$)")


def ending_rules(view: View, finish_reason: str) -> dict[str, float]:
    """Rules about the end of a text that is not empty."""
    reason = finish_reason.lower()
    if reason in LIMIT:
        return {"truncated": 1.0}
    if reason not in STOPPED:
        return {}
    rules: dict[str, float] = {}
    if view.fences and not view.fences[-1][2]:
        rules["fence_open"] = 1.0
    text = view.text
    if "<think>" in text and text.rfind("<think>") > text.rfind("</think>"):
        rules["reasoning_open"] = 1.0
    if not rules and _in_a_sentence(text):
        rules["cut_off"] = 1.0
    return rules


def _in_a_sentence(text: str) -> bool:
    """Whether prose breaks off: its last paragraph is one long line that ends in a letter or comma, after five whole
    sentences."""
    text = text.rstrip()
    last = text[text.rfind("\n") + 1 :]
    if len(last) < 80 or not (text[-1:].isalpha() or text[-1:] in ",;("):
        return False
    if last.lstrip()[:1] in "-*|#>+•" or "://" in last[-80:] or last.count(" ") < 8:
        return False
    return len(_SENTENCE.findall(last)) >= 1 and len(_SENTENCE.findall(text)) >= 5
