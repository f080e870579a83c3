"""Tool calls that came as plain text: ``call_text`` (soft) where the text sets out to be a call and is none.

Engines without a tool parser, or whose parser gave up, hand the call over as the answer's text. Such a text begins with an
object whose first key is a tool's name. It is a call if it is JSON, or several values after each other, with an object of
arguments; it is none if it does not parse, if other text follows it, or if the key of its arguments is misspelt. A record of
data that begins with a name is left alone. ``calls`` (a feature, not a rule) says that an answer was or set out to be a call:
the rate of malformed calls is one among calls.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

_NAME = r"""["'](?:name|function|tool|tool_name|recipient_name)["']\s*:\s*"""
_OPENS = re.compile(
    r"\s*(?:<tool_call>\s*)?\[?\s*\{\s*(?:[\"']type[\"']\s*:\s*[\"']function[\"']\s*,\s*)?" + _NAME
)
_TAG = re.compile(r"\s*</?tool_call>\s*")
ARGUMENTS = ("arguments", "parameters", "args", "input", "kwargs")
_ARGUMENTS = re.compile(r"""["'](?:arguments|parameters|args|input|kwargs)["']\s*:""")
_DECODER = json.JSONDecoder()
MOST = 65_536
MALFORMED, FOLLOWED, MISSPELT = 1.0, 2.0, 3.0
"""The measure of ``call_text``: no JSON, more text after the call, arguments under a misspelt key."""


def call_text_rules(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """The rule and the feature ``calls`` of a text; both empty where it does not set out to be a call.

    >>> call_text_rules('{"name": "run", "arguments": {"command": "ls"}}')
    ({}, {'calls': 1.0})
    >>> call_text_rules('{"name": "run", "arguments": {"comm')[0]
    {'call_text': 1.0}
    """
    if not _OPENS.match(text):
        return {}, {}
    body = _TAG.sub(" ", text[:MOST]).strip()
    values, rest = _values(body)
    calls = [c for v in values for c in (v if isinstance(v, list) else [v])]
    if not values:
        return ({"call_text": MALFORMED}, {"calls": 1.0}) if _ARGUMENTS.search(text) else ({}, {})
    kinds = [_kind(c) for c in calls]
    if "misspelt" in kinds:
        return {"call_text": MISSPELT}, {"calls": float(len(calls))}
    if "data" in kinds:
        return {}, {}
    return {"call_text": FOLLOWED} if rest else {}, {"calls": float(len(calls))}


def _values(body: str) -> tuple[list[Any], str]:
    """JSON values one after another (commas and line breaks between them are fine), and what is left."""
    values: list[Any] = []
    at = 0
    while at < len(body):
        try:
            value, at = _DECODER.raw_decode(body, at)
        except (ValueError, RecursionError):
            break
        values.append(value)
        while at < len(body) and (body[at].isspace() or body[at] in ",;"):
            at += 1
    return values, body[at:]


def _kind(value: Any) -> str:
    """``call``, ``misspelt`` (a call but for the name of its arguments) or ``data``."""
    if not isinstance(value, dict):
        return "data"
    inner = value.get("function", value)
    if not isinstance(inner, dict):
        inner = value
    if any(key in inner for key in ARGUMENTS):
        return "call"
    for key, part in inner.items():
        if isinstance(part, dict) and difflib.get_close_matches(str(key), ARGUMENTS, 1, 0.8):
            return "misspelt"
    return "data"
