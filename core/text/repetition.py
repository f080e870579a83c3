"""R7 ``repetitive_tail`` (soft): the end of a long output says the same few things over and over without repeating exactly.

Fewer than a quarter of the 4-grams of words in the last 1,500 characters are distinct and zlib shrinks them below a fifth.
Drifting loops ("item 17 ...", "item 18 ...") are caught at 20-48 %; ordinary lists and tables trip it too: a rate only.
"""

from __future__ import annotations

import zlib

from core.text.view import View

_TAIL_CHARS, _MIN_WORDS, _MIN_REPEATED = 1500, 200, 250


def tail_rules(view: View, repeated: int) -> tuple[dict[str, float], dict[str, float]]:
    """The rule ``repetitive_tail`` with the share of distinct 4-grams, and the feature ``zlib_tail``.

    ``repeated``: how many 16-grams of the text occurred before; below 250 nothing compresses that far.
    """
    if repeated < _MIN_REPEATED:
        return {}, {}
    tail = view.text[-_TAIL_CHARS:]
    raw = tail.encode("utf-8", "replace")
    ratio = len(zlib.compress(raw, 1)) / len(raw)
    if ratio >= 0.2:
        return {}, {}
    features = {"zlib_tail": round(ratio, 3)}
    words = tail.split()
    if len(words) < _MIN_WORDS:
        return {}, features
    grams = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    distinct = len(set(grams)) / len(grams)
    return ({"repetitive_tail": round(distinct, 3)} if distinct < 0.25 else {}), features
