"""Where in a text the damage is, as far as a rule's name and the text can tell: for marking it, never for judging it."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from core.text.loops import Grams, find_echo, find_loop
from core.text.view import View

RUN = re.compile(r"(\S)\1{23,}", re.DOTALL)
SPACES = re.compile(r"\s{24,}")
BROKEN = re.compile(r"[\ufffd\x80-\x9f]+")
OPEN, CLOSE = "▶", "◀"
AROUND = 160
"""Characters kept before and after a span that is shown."""


def span_of(text: str, rules: Collection[str]) -> tuple[int, int] | None:
    """``text[start:end]`` that shows the damage; None where it cannot be placed (an empty answer, a missing tool call)."""
    view = View.of(text)
    if len(view.text) != len(text) or not text:
        return None
    names = " ".join(rules)
    if "loop" in names or "repet" in names or "echo" in names:
        grams = Grams(view.text, view.codes)
        loop = find_loop(grams) or find_echo(grams)
        if loop is not None:
            return loop.start, loop.end
    runs = [m.span() for m in (*RUN.finditer(text), *SPACES.finditer(text))]
    if runs and ("run" in names or "space" in names or "flood" in names or "repet" in names):
        return max(runs, key=lambda s: s[1] - s[0])
    broken = [m.span() for m in BROKEN.finditer(text)]
    if broken:
        return broken[0][0], broken[-1][1]
    odd = _minority(view)
    if odd is not None:
        return odd
    return max(runs, key=lambda s: s[1] - s[0]) if runs else None


def _minority(view: View) -> tuple[int, int] | None:
    """From the first to the last letter of a script that is not the text's own."""
    scripts = view.scripts
    letters = scripts[scripts > 0]
    if not len(letters):
        return None
    own = int(np.bincount(letters).argmax())
    at = np.flatnonzero((scripts > 0) & (scripts != own))
    return (int(at[0]), int(at[-1]) + 1) if len(at) else None


def marked(text: str, span: tuple[int, int] | None) -> str:
    """The text with its span between ``▶`` and ``◀``, cut to what is around it; long spans lose their middle."""
    if span is None:
        return text if len(text) <= 4 * AROUND else text[: 2 * AROUND] + " … " + text[-2 * AROUND :]
    start, end = span
    inside = text[start:end]
    if len(inside) > 6 * AROUND:
        inside = f"{inside[: 3 * AROUND]} … {len(inside) - 6 * AROUND:,} characters … {inside[-3 * AROUND :]}"
    before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    return (
        ("… " if start > AROUND else "")
        + f"{before}{OPEN}{inside}{CLOSE}{after}"
        + (" …" if end + AROUND < len(text) else "")
    )
