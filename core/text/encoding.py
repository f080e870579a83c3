"""R3b ``broken_encoding`` (hard): bytes that did not survive.

U+FFFD at two or more places (three side by side are one place), two or more mojibake pairs, or two or more C1 control characters.
``replacement_single`` (soft): one place with U+FFFD, usually a character cut in two by whoever collected the text.
``mojibake`` (soft): text that ftfy would repair, below the count that makes it certain.
"""

from __future__ import annotations

import re

from ftfy.badness import badness

from core.text.view import View

_PAIR = re.compile(
    "[\u00c2\u00c3\u00c5\u00d0\u00d1][\u0080-\u00bf]|\u00e2[\u0080-\u00bf\u20ac\u201a\u0192\u2020-\u2022]."
    "|[\u00e3-\u00e9][\u0080-\u00bf][\u0080-\u00bf]|\u00f0\u0178."
)
_REPLACED = re.compile("\ufffd+")
_C1 = re.compile("[\u0080-\u0084\u0086-\u009f]")
_SUSPECT = re.compile(
    "[\u0080-\u00ff\u0152-\u0192][\u0080-\u00bf\u0152-\u0192\u02c6\u2013-\u2122]|[\u0080-\u009f]"
)
"""Two neighbours that only mojibake (and rare text) puts side by side: nearly every clean text stops here."""


def encoding_rules(view: View) -> tuple[dict[str, float], dict[str, float]]:
    """Rules and features about broken encoding; ASCII text has none."""
    if view.ascii:
        return {}, {}
    text = view.text
    rules: dict[str, float] = {}
    features: dict[str, float] = {}
    replaced = 0
    if "\ufffd" in text:
        features["replacement_chars"] = float(text.count("\ufffd"))
        # one character cut in two leaves up to three marks side by side: what counts is the number of places
        replaced = sum(-(-len(m.group()) // 3) for m in _REPLACED.finditer(text))
    pairs = controls = 0
    suspect = _SUSPECT.search(text) is not None
    if suspect:
        pairs = len(_PAIR.findall(text))
        controls = len(_C1.findall(text))
    worst = max(replaced, pairs, controls)
    if worst >= 2:
        rules["broken_encoding"] = float(worst)
    elif replaced == 1:
        rules["replacement_single"] = 1.0
    if suspect and worst < 2 and (bad := badness(text)):
        rules["mojibake"] = float(bad)
    return rules, features
