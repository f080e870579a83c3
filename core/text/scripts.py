"""Scripts of letters, text in scripts that do not belong together, and changes of script half-way.

R4b ``script_soup`` (hard): at least three scripts that are foreign to the text and at least three places where letters of two
scripts touch. R5 ``cjk_leak`` (soft): Chinese, Japanese or Korean letters glued to Latin ones, under 5 % of the letters of a
Latin text. ``script_flip`` (soft): the first and last quarter are written in different scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from core.text.view import View

NONE, LATIN, GREEK, CYRILLIC, ARMENIAN, HEBREW, ARABIC, THAI, HANGUL, CJK = range(10)
"""Script numbers; Han, kana and bopomofo are one group (``CJK``) because they mix in ordinary text. Others follow from 10."""

_RANGES: tuple[tuple[int, int, int], ...] = (
    (0x41, 0x5A, LATIN),
    (0x61, 0x7A, LATIN),
    (0xC0, 0x2AF, LATIN),
    (0x1E00, 0x1EFF, LATIN),
    (0x2C60, 0x2C7F, LATIN),
    (0xA720, 0xA7FF, LATIN),
    (0xFF21, 0xFF3A, LATIN),
    (0xFF41, 0xFF5A, LATIN),
    (0x370, 0x3FF, GREEK),
    (0x1F00, 0x1FFF, GREEK),
    (0x400, 0x52F, CYRILLIC),
    (0x1C80, 0x1C8F, CYRILLIC),
    (0x2DE0, 0x2DFF, CYRILLIC),
    (0xA640, 0xA69F, CYRILLIC),
    (0x531, 0x58F, ARMENIAN),
    (0x591, 0x5F4, HEBREW),
    (0x610, 0x61A, ARABIC),
    (0x620, 0x65F, ARABIC),
    (0x66E, 0x6D3, ARABIC),
    (0x6FA, 0x6FF, ARABIC),
    (0x750, 0x77F, ARABIC),
    (0x8A0, 0x8FF, ARABIC),
    (0xFB50, 0xFDFF, ARABIC),
    (0xFE70, 0xFEFE, ARABIC),
    (0xE01, 0xE4E, THAI),
    (0x1100, 0x11FF, HANGUL),
    (0x3131, 0x318F, HANGUL),
    (0xAC00, 0xD7AF, HANGUL),
    (0x3005, 0x3007, CJK),
    (0x3041, 0x3096, CJK),
    (0x309D, 0x309F, CJK),
    (0x30A1, 0x30FA, CJK),
    (0x30FC, 0x312F, CJK),
    (0x31F0, 0x31FF, CJK),
    (0x3400, 0x4DBF, CJK),
    (0x4E00, 0x9FFF, CJK),
    (0xF900, 0xFAFF, CJK),
    (0xFF66, 0xFF9F, CJK),
    (0x20000, 0x2FFFF, CJK),
    *((0x900 + 0x80 * i, 0x963 + 0x80 * i, 10 + i) for i in range(10)),  # Devanagari ... Sinhala
    (0xE81, 0xEDF, 20),  # Lao
    (0xF00, 0xFFF, 21),  # Tibetan
    (0x1000, 0x109F, 22),  # Myanmar
    (0x10A0, 0x10FF, 23),  # Georgian
    (0x1200, 0x139F, 24),  # Ethiopic
    (0x13A0, 0x13FF, 25),  # Cherokee
    (0x1400, 0x167F, 26),  # Canadian syllabics
    (0x1780, 0x17FF, 27),  # Khmer
    (0x1800, 0x18AF, 28),  # Mongolian
)


def _table() -> NDArray[np.uint8]:
    table = np.zeros(0x30001, dtype=np.uint8)
    for low, high, script in _RANGES:
        table[low : high + 1] = script
    for symbol in (0xD7, 0xF7):  # × and ÷
        table[symbol] = NONE
    return table


SCRIPT_TABLE: NDArray[np.uint8] = _table()
"""Script number by code point; the last entry stands for everything above."""

FOREIGN_SHARE = 0.35
"""A script with at least this share of the letters belongs to the text and is not foreign."""
MIN_SCRIPTS, MIN_GLUED = 3, 3


def script_rules(view: View) -> tuple[dict[str, float], dict[str, float]]:
    """Rules and features about scripts: ``({rule: measure}, {feature: value})``. ASCII text has neither."""
    if view.ascii:
        return {}, {}
    s = view.scripts
    counts = np.bincount(s, minlength=32)
    counts[NONE] = 0
    letters = int(counts.sum())
    if letters == 0:
        return {}, {}
    present = np.flatnonzero(counts)
    rules: dict[str, float] = {}
    features: dict[str, float] = {}
    if present.size == 1:
        return rules, features
    features["latin_share"] = round(float(counts[LATIN] / letters), 4)
    foreign = [int(i) for i in present if i != LATIN and counts[i] < FOREIGN_SHARE * letters]
    left, right = s[:-1], s[1:]
    touching = (left != right) & (left != NONE) & (right != NONE)
    where = np.flatnonzero(touching)
    if where.size:
        a, b = left[where], right[where]
        low, high = np.minimum(a, b), np.maximum(a, b)
        # Latin beside CJK is ordinary Japanese and Chinese; Latin beside Greek is mathematics
        odd = ~((low == LATIN) & ((high == CJK) | (high == GREEK)))
        glued = int(odd.sum())
        if len(foreign) >= MIN_SCRIPTS and glued >= MIN_GLUED:
            rules["script_soup"] = float(glued)
        leaks = int(((low == LATIN) & ((high == CJK) | (high == HANGUL))).sum())
        east = int(counts[CJK] + counts[HANGUL])
        if leaks and counts[LATIN] > 0.8 * letters and east < 0.05 * letters:
            rules["cjk_leak"] = float(leaks)
    if foreign:
        features["foreign_scripts"] = float(len(foreign))
    flip = _flip(s)
    if flip > 0.6:
        rules["script_flip"] = round(flip, 3)
    return rules, features


def _flip(s: NDArray[np.uint8]) -> float:
    """Half the L1 distance between the script shares of the first and the last quarter; 0 where either has too few letters."""
    quarter = s.size // 4
    if quarter < 60:
        return 0.0
    first, last = s[:quarter], s[-quarter:]
    a = np.bincount(first[first != NONE], minlength=32).astype(float)
    b = np.bincount(last[last != NONE], minlength=32).astype(float)
    if min(a.sum(), b.sum()) < 40:
        return 0.0
    return float(np.abs(a / a.sum() - b / b.sum()).sum() / 2)
