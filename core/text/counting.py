"""``loop_counting``: a loop that counts ("17. the same", "18. the same"), which no exact comparison sees.

Every number is replaced by one mark and the rest is searched for an exact loop (R1). It counts if one number of the unit grows
by one from repeat to repeat. Hard from 500 characters and 5 repeats on, if the text ends in the loop, no other number of the unit
changes and the unit is language: 15 letters or more, the larger part of it (from 10 repeats on 8 letters, a third of it). Soft
(``list_counting``) otherwise: tables and enumerations look like that.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from core.text.guards import has_attributes
from core.text.loops import LONG_REPEATS, LONG_TOTAL, MIN_TOTAL, TAIL_SLACK, Grams, Loop, find_loop
from core.text.view import View

MIN_NUMBERS = 4
_NUMBER = re.compile(r"[0-9]+")


def counting_rules(view: View) -> dict[str, float]:
    """Rule ``loop_counting`` or ``list_counting`` with the number of repeats."""
    pieces = _NUMBER.split(view.text)
    if len(pieces) <= MIN_NUMBERS:
        return {}
    again = sum(len(piece) * n for piece, n in Counter(pieces).items() if n > 1)
    if 2 * again < MIN_TOTAL:
        return {}
    plain = "0".join(pieces)
    loop = find_loop(Grams(plain, View(plain).codes))
    if loop is None:
        return {}
    growing, changing = _numbers(plain, _NUMBER.findall(view.text), loop)
    if not growing:
        return {}
    cut = len(view.text) - len(plain)
    hard = (
        changing == growing == 1
        and loop.total >= LONG_TOTAL
        and loop.repeats >= LONG_REPEATS
        and len(plain) - loop.end <= TAIL_SLACK
        and _is_language(plain[loop.start : loop.start + loop.period], loop.repeats)
        and not view.in_closed_fence(loop.start + cut, loop.end + cut)
    )
    return {"loop_counting" if hard else "list_counting": round(loop.repeats, 2)}


def _is_language(unit: str, repeats: float) -> bool:
    if has_attributes(unit) or "0:0:0" in unit or "0-0-0" in unit:  # markup; log lines with a time
        return False
    letters = sum(c.isalpha() for c in unit)
    return (letters >= 15 and 2 * letters >= len(unit)) or (
        repeats >= 10 and letters >= 8 and 3 * letters >= len(unit)
    )


def _numbers(plain: str, numbers: list[str], loop: Loop) -> tuple[int, int]:
    """How many numbers of the unit grow by one at each repeat, and how many change at all."""
    first = plain.count("0", 0, loop.start)
    per_unit = plain.count("0", loop.start, loop.start + loop.period)
    growing = changing = 0
    for k in range(per_unit):
        series = numbers[first + k : first + per_unit * int(loop.repeats) : per_unit]
        if len(set(series)) > 1:
            changing += 1
            short = all(len(n) < 15 for n in series)
            growing += short and len(series) >= 3 and all(int(b) - int(a) == 1 for a, b in pairwise(series))
    return growing, changing
