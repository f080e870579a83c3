"""R6: Chinese characters that hardly anybody writes, inside text that has no reason for them.

A character is *rare* if it is in none of GB 2312 level 1, JIS X 0208 level 1 and Big5 level 1 (built from Python's codecs).
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from core.text.scripts import CJK, LATIN
from core.text.view import View

_LEVEL1 = (
    ("gb2312", 0xB0, 0xD7, 0xA1, 0xFE),
    ("euc_jp", 0xB0, 0xCF, 0xA1, 0xFE),
    ("big5", 0xA4, 0xC6, 0x40, 0xFE),
)


def _decoded(codec: str, first: int, last: int, low: int, high: int) -> str:
    pairs = (bytes((a, b)) for a in range(first, last + 1) for b in range(low, high + 1))
    return "".join(pair.decode(codec, "ignore") for pair in pairs)


@cache
def rare_table() -> NDArray[np.bool_]:
    """True for each code point that is Han and rare; the last entry stands for everything above."""
    rare = np.zeros(0x30001, dtype=np.bool_)
    for low, high in ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2FFFF)):
        rare[low : high + 1] = True
    for spec in _LEVEL1:
        for char in _decoded(*spec):
            rare[ord(char)] = False
    return rare


@cache
def unknown_table() -> NDArray[np.bool_]:
    """True for rare Han that is not in JIS X 0208 at all: no ordinary Japanese text has it."""
    table = rare_table().copy()
    for char in _decoded("euc_jp", 0xB0, 0xF4, 0xA1, 0xFE):
        table[ord(char)] = False
    return table


_EAST = re.compile(
    r"\b(?:chinese|japanese|korean|vietnamese|mandarin|cantonese|kanji|hanzi|hanja|chinois|japonais|chinesisch\w*|japanisch\w*"
    r"|koreanisch\w*|cor[ée]en|unicode|radicals?|utf-?8)\b",
    re.IGNORECASE,
)
MIN_CERTAIN, MIN_GLUED = 3, 2


def names_east_asia(prompt: str) -> bool:
    """Whether a prompt gives a reason for Chinese characters: it contains some or names a language that has them."""
    if _EAST.search(prompt):
        return True
    return not prompt.isascii() and bool((View.of(prompt).scripts == CJK).any())


def rare_han_rules(view: View, prompt: str | None) -> tuple[dict[str, float], dict[str, float]]:
    """Rules about rare Chinese characters and the feature ``rare_han`` (how many there are).

    Hard: ``rare_han`` (Latin text, the prompt is known and gives no reason for them), ``rare_han_glued`` (Latin text, at
    least three of which two touch a Latin letter, or one and no other Chinese character is there: nobody quotes a
    character inside a word, so no prompt is needed),
    ``rare_han_kana`` (Japanese text, at least three different ones that JIS X 0208 does not have). Soft: ``rare_han_no_prompt``,
    ``rare_han_prompted``, ``rare_han_in_han``.
    """
    if view.ascii:
        return {}, {}
    scripts = view.scripts
    east = int((scripts == CJK).sum())
    if not east:
        return {}, {}
    codes = np.minimum(view.codes, 0x30000)
    where = np.flatnonzero(rare_table()[codes])
    if not where.size:
        return {}, {}
    rare = float(where.size)
    features = {"rare_han": rare}
    latin = int((scripts == LATIN).sum())
    if latin > 4 * (east - where.size):
        beside = (scripts[np.maximum(where - 1, 0)] == LATIN) | (
            scripts[np.minimum(where + 1, scripts.size - 1)] == LATIN
        )
        glued = int(beside.sum())
        # somebody who explains characters also writes ordinary ones; corruption does not
        if rare >= MIN_CERTAIN and (glued >= MIN_GLUED or (glued and where.size == east)):
            return {"rare_han_glued": rare}, features
        if prompt is None:
            return {"rare_han_no_prompt": rare}, features
        return {"rare_han_prompted" if names_east_asia(prompt) else "rare_han": rare}, features
    unknown = np.unique(codes[unknown_table()[codes]]).size
    if not unknown:
        return {}, features
    kana = int(((codes >= 0x3041) & (codes <= 0x30FA)).sum())
    name = "rare_han_kana" if unknown >= MIN_CERTAIN and 10 * kana >= east else "rare_han_in_han"
    return {name: float(unknown)}, features
