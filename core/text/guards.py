"""Reasons for which a loop or a run is what was asked for, not a fault."""

from __future__ import annotations

import re

_ASKED = re.compile(
    r"\b(?:repeat(?:ed|ing|edly)?|over and over|forever|endless(?:ly)?|infinite(?:ly)?|non-?stop"
    r"|\d+\s*(?:x|times|lines|copies|rows|repetitions)|(?:hundred|thousand|million|many|ten|fifty|twenty)\s+times"
    r"|wiederhol\w*|\d+\s*-?mal|r[ée]p[èée]t\w*|\d+\s*fois|repite|repetir|\d+\s+veces)\b"
    r"|\d+\s*[回度]|繰り返|くり返|くりかえ|重复|重複|反复|반복",
    re.IGNORECASE,
)
_STAMP = re.compile(r"\d{1,2}:\d\d:\d\d|\d{4}-\d\d-\d\d")
_REOPENED = re.compile(r"[\]}][ \t]*[\[{]")
_ATTRIBUTE = re.compile(r"""=\s*["'][^"']*["']""")
_WORD = re.compile(r"[0-9A-Za-z+/=_\-]*")
_BLOB = 32
_SYNTAX = frozenset("{}[]()<>\"':;,=|\\/&#%*+-0123456789")


def asks_for_repetition(prompt: str | None) -> bool:
    """Whether the prompt asks to say something many times. Unknown prompts ask for nothing."""
    return prompt is not None and _ASKED.search(prompt) is not None


def repeats_in_prompt(unit: str, prompt: str | None) -> bool:
    """Whether the repeated unit already stands at least twice in the prompt."""
    return prompt is not None and prompt.count(unit) >= 2


def machine_made(unit: str) -> bool:
    """Whether a repeated unit looks like a log line, a record or numbers rather than language.

    True for a unit with a time stamp, one without two letters, and one in which syntax and digits are 40 % or more. A record
    that is closed and opened again with neither comma nor line break between is no data format, but a model in a loop.
    """
    if _REOPENED.search(unit + unit) and unit.count('"') >= 4:
        return False
    if hardly_language(unit):
        return True
    return sum(c in _SYNTAX for c in unit) >= 0.4 * len(unit)


def hardly_language(unit: str) -> bool:
    """True for a unit with a time stamp or without two letters: logs and matrices, however often they repeat.

    A Chinese, Japanese or Korean character is a word and counts as two.
    """
    return _STAMP.search(unit) is not None or sum(1 + (c >= "\u3041") for c in unit if c.isalpha()) < 2


def has_attributes(unit: str) -> bool:
    """Whether a unit is markup or assignments (``name="v1"``): such lists count without anything being wrong."""
    return _ATTRIBUTE.search(unit) is not None


def blob_around(before: str, after: str) -> bool:
    """Whether a stretch lies inside base64 or hex: 32 characters or more of that alphabet touch it, letters and digits."""
    head = _WORD.match(before[::-1])
    tail = _WORD.match(after)
    around = (head.group() if head else "") + (tail.group() if tail else "")
    return len(around) >= _BLOB and any(c.isdigit() for c in around) and any(c.isalpha() for c in around)
