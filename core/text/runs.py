"""R2 ``char_run`` (hard): one character, 40 times or more in a row: a letter, a digit, ``!``, ``?``, ``。``, U+FFFD or ZWSP.

Rulers (``----``, ``====``, ``____``, ``....``, box drawing) are in the set only from 1,000 on, if the text ends in one. Runs
that have an ordinary reason count as ``char_run_plain`` (soft): numbers with many digits (10^100, 1/3), null hashes and hex
words, base64 and DNA, masked keys (``sk-xxxx``), test data (``"aaaa"``, ``looong``), and anything inside a closed code block.
"""

from __future__ import annotations

import re

import numpy as np

from core.text.guards import blob_around
from core.text.view import View

MIN_RUN, ENDLESS = 40, 1000
_SIGNS = frozenset("!?。！？\ufffd\u200b")
_HASH_LENGTHS = (40, 56, 64, 96, 128)
_BANNER = re.compile(r"\n[ \t]*(?:\*|#+|//+|;+|--+)[ \t]*\Z")
"""A run that fills a comment's line, as programmers write warnings."""
_BESIDE = re.compile(r"\A.[ \t]*[,;)\]}]")
"""A quoted run that is an argument or an entry of a list: test data, of any length."""


def run_rules(view: View) -> tuple[dict[str, float], dict[str, float]]:
    """The longest run of one character: rules ``char_run`` or ``char_run_plain`` and the feature ``longest_run``."""
    codes = view.codes
    if codes.size < MIN_RUN:
        return {}, {}
    ends = np.flatnonzero(codes[1:] != codes[:-1])
    bounds = np.concatenate(([-1], ends, [codes.size - 1]))
    lengths = np.diff(bounds)
    if int(lengths.max()) < MIN_RUN:
        return {}, {}
    rules: dict[str, float] = {}
    features: dict[str, float] = {}
    for i in np.flatnonzero(lengths >= MIN_RUN):
        start, end = int(bounds[i]) + 1, int(bounds[i + 1]) + 1
        char = view.text[start]
        if not (char.isalnum() or char in _SIGNS or _endless(view, start, end, char)):
            continue
        name = "char_run_plain" if _ordinary(view, start, end, char) else "char_run"
        rules[name] = max(rules.get(name, 0.0), float(end - start))
        features["longest_run"] = max(features.get("longest_run", 0.0), float(end - start))
    return rules, features


def _endless(view: View, start: int, end: int, char: str) -> bool:
    """Whether a ruler or a row of dots never ends: a thousand of them, and the text with it."""
    return end - start >= ENDLESS and not char.isspace() and end >= len(view.text) - 1


def _ordinary(view: View, start: int, end: int, char: str) -> bool:
    """Whether a run has an everyday reason; hardly ever where it is long and the text ends with it."""
    text = view.text
    if view.in_closed_fence(start, end):
        return True
    before, after = text[max(0, start - 96) : start], text[end : end + 96]
    at_end = not after.strip()
    length = end - start
    if char.isdigit():
        if length in _HASH_LENGTHS and not (before[-1:].isalnum() and before[-2:].lower() != "0x"):
            return not at_end or length <= 64
        if (not at_end or length <= 128) and before[-1:] and (before[-1] == "." or before[-1].isdigit()):
            return True
    if char in "fF" and length in _HASH_LENGTHS:
        return True
    if char.isalnum() and not at_end and length < 128 and (after[:1].isalnum() or _quoted(before, after)):
        return True
    if char.isalnum() and not at_end and length < 512 and _quoted(before, after) and _BESIDE.search(after):
        return True
    if char in "!?" and not at_end and length < 128 and _BANNER.search(before) and after[:1] == "\n":
        return True
    if char in "xX" and length <= 128 and (not at_end or before[-1:] in tuple("-_=:\"'")):
        return True
    if (
        char in "ACGTUNacgtun"
        and len(before) >= 12
        and set(before[-12:].upper()) <= set("ACGTUN\n 0123456789")
    ):
        return not at_end or length <= 128
    return char.isascii() and char.isalnum() and blob_around(before, after)


def _quoted(before: str, after: str) -> bool:
    """Whether a run is a whole quoted string or the whole text of an element: ``"aaaa"``, ``>aaaa<``: test data."""
    return before[-1:] + after[:1] in ('""', "''", "``", "><")
