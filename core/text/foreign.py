"""``foreign_text`` (soft): an output that repeats what somebody else asked at that time, and not what its own prompt says.

Prompts of the last quarter of an hour are remembered as hashes of 64-character windows, one in 16 (chosen by the hash itself,
so that the same stretch is chosen wherever it stands); never as text. A hash counts against an output if another session's
prompt has it, the output's own session has not, and no third one has (templates, shared documents and system prompts are
nobody's own). Three hashes of the same other session or more make the rule: a copied stretch of some 150 characters.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

import numpy as np

from core.text.view import View

WINDOW_SECONDS = 900.0
MIN_SHARED = 3
_WIDTH, _ONE_IN = 64, 16
_MAX_CHARS = 32_768
_MAX_HASHES = 400_000
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHARED = ""
"""Marks a hash that two sessions or more have."""


def sampled_hashes(text: str) -> list[int]:
    """Hashes of one in 16 of the 64-character windows of a text, white space made even; long texts by their beginning and
    end."""
    text = " ".join(text.split())
    if len(text) > _MAX_CHARS:
        text = text[: _MAX_CHARS // 4] + text[-3 * _MAX_CHARS // 4 :]
    if len(text) < _WIDTH:
        return []
    h = View(text).codes.astype(np.uint64) + np.uint64(1)
    width = 1
    while width < _WIDTH:
        h = (h[:-width] * _MIX) ^ (h[width:] + (h[:-width] >> np.uint64(29)))
        width *= 2
    h *= _MIX
    return [int(v) for v in np.unique(h[(h >> np.uint64(60)) == 0])]


class Prompts:
    """The prompts of the last quarter of an hour, bounded; one instance an intake, records roughly in order of time."""

    def __init__(self, window: float = WINDOW_SECONDS, limit: int = _MAX_HASHES) -> None:
        self._window, self._limit = window, limit
        self._owners: OrderedDict[int, tuple[str, float]] = OrderedDict()

    def shared(self, output: str, prompt: str, owner: str, ts: float) -> int:
        """How many sampled windows of ``output`` one other session's prompt has and its own has not; then remembers ``prompt``.

        ``owner`` names the session (the request where there is none).
        """
        own = sampled_hashes(prompt)
        known = set(own)
        found: Counter[str] = Counter()
        for h in sampled_hashes(output):
            entry = self._owners.get(h)
            if (
                entry
                and h not in known
                and entry[0] not in (owner, _SHARED)
                and abs(ts - entry[1]) <= self._window
            ):
                found[entry[0]] += 1
        self._remember(own, owner, ts)
        return max(found.values(), default=0)

    def _remember(self, hashes: list[int], owner: str, ts: float) -> None:
        for h in hashes:
            entry = self._owners.pop(h, None)
            fresh = entry is not None and abs(ts - entry[1]) <= self._window
            shared = fresh and entry is not None and entry[0] != owner
            self._owners[h] = (_SHARED if shared else owner, ts)
        while self._owners:
            _, seen = next(iter(self._owners.values()))
            if len(self._owners) <= self._limit and ts - seen <= self._window:
                break
            self._owners.popitem(last=False)
