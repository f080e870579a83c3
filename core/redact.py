"""Secrets and addresses struck out of a text before it is stored. What is left is no proof that nothing personal remains."""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import Pattern

_BUILT_IN: tuple[tuple[str, Pattern[str]], ...] = (
    (
        "private key",
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.{0,8000}?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
    ),
    ("token", re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?")),
    (
        "key",
        re.compile(
            r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_\-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
            r"|\bglpat-[A-Za-z0-9_\-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_\-]{30,}|\bxox[abprs]-[A-Za-z0-9\-]{10,}"
            r"|\bhf_[A-Za-z0-9]{20,}"
        ),
    ),
    (
        "secret",
        re.compile(
            r"(?i)(?<=[\s\"'&?,;{])(?:api[_-]?key|secret|passw(?:or)?d|access[_-]?token|authorization)[\"']?\s*[:=]\s*"
            r"(?:bearer\s+)?[\"']?[^\s\"',;&}]{6,}"
        ),
    ),
    ("secret", re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/\-]{16,}=*")),
    ("url with password", re.compile(r"\b[a-z][a-z0-9+.\-]{1,20}://[^\s/:@]{1,100}:[^\s/@]{1,100}@")),
    ("email", re.compile(r"[A-Za-z0-9._%+\-]{1,64}@[A-Za-z0-9\-]{1,63}(?:\.[A-Za-z0-9\-]{1,63}){1,5}")),
    ("iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b")),
    ("phone", re.compile(r"(?<![\w.])\+\d{1,3}[ \-/.]?(?:\(?\d{1,5}\)?[ \-/.]?){2,6}\d{2,4}(?![\w.])")),
)
_CARD = re.compile(r"(?<![\d.])(?:\d[ \-]?){13,19}(?![\d.])")


class Redaction:
    """Replaces what the built-in patterns and ``extra`` regular expressions match by ``[what]``."""

    def __init__(self, extra: Iterable[str] = ()) -> None:
        self._patterns = (*_BUILT_IN, *(("redacted", re.compile(p)) for p in extra))

    def __call__(self, text: str) -> str:
        """The text without them; never longer than a constant times the input."""
        for name, pattern in self._patterns:
            text = pattern.sub(f"[{name}]", text)
        return _CARD.sub(_card, text)


def _card(found: re.Match[str]) -> str:
    digits = [int(c) for c in found.group() if c.isdigit()]
    if not 13 <= len(digits) <= 19:
        return found.group()
    total = sum(d if i % 2 == 0 else (2 * d - 9 if d > 4 else 2 * d) for i, d in enumerate(reversed(digits)))
    if total % 10 or len(set(digits)) == 1:
        return found.group()
    return "[card]" + (" " if found.group()[-1] in " -" else "")
