"""One output as the rules see it: its characters as an array, its fenced code blocks, its letters by script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.text.scripts import SCRIPT_TABLE

CodeArray = NDArray[np.uint32]
MAX_CHARS = 65_536
"""Longer outputs are scored on their first 16,384 and last 49,152 characters: what breaks shows at the end."""

_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})", re.MULTILINE)


@dataclass(frozen=True)
class View:
    """The characters of one output, with what several rules need computed once.

    ``text`` is at most ``MAX_CHARS`` characters; lone surrogates are allowed.
    """

    text: str

    @classmethod
    def of(cls, text: str) -> View:
        """Cut a very long text to its beginning and its end."""
        if len(text) > MAX_CHARS:
            text = text[: MAX_CHARS // 4] + text[-3 * MAX_CHARS // 4 :]
        return cls(text)

    @cached_property
    def ascii(self) -> bool:
        """Whether the text is plain ASCII, where most rules cannot fire."""
        return self.text.isascii()

    @cached_property
    def codes(self) -> CodeArray:
        """Code points, one a character."""
        if self.ascii:
            return np.frombuffer(self.text.encode("ascii"), dtype=np.uint8).astype(np.uint32)
        return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)

    @cached_property
    def scripts(self) -> NDArray[np.uint8]:
        """Script number of each character (0 where it is no letter)."""
        return SCRIPT_TABLE[np.minimum(self.codes, len(SCRIPT_TABLE) - 1)]

    @cached_property
    def fences(self) -> tuple[tuple[int, int, bool], ...]:
        """Fenced code blocks as (start, end, closed); the last one may be open where the text was cut or broke off."""
        if "```" not in self.text and "~~~" not in self.text:
            return ()
        out: list[tuple[int, int, bool]] = []
        opened: tuple[int, str] | None = None
        for m in _FENCE.finditer(self.text):
            mark = m.group(1)
            if opened is None:
                opened = (m.start(), mark)
            elif mark[0] == opened[1][0] and len(mark) >= len(opened[1]):
                out.append((opened[0], m.end(), True))
                opened = None
        if opened is not None:
            out.append((opened[0], len(self.text), False))
        return tuple(out)

    def in_closed_fence(self, start: int, end: int) -> bool:
        """Whether at least half of a span lies inside closed code blocks."""
        inside = sum(max(0, min(end, e) - max(start, s)) for s, e, closed in self.fences if closed)
        return 2 * inside >= end - start > 0
