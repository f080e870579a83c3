"""How exporters spell numbers: Python's client, Go's and Rust's differ, and so do the ``le`` labels of one edge."""

from __future__ import annotations

import math
from collections.abc import Callable

Spelling = Callable[[float], str]


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return None


def python_number(value: float) -> str:
    """As prometheus_client for Python writes it: ``1.0``, ``2.097152e+06``, ``0.1``."""
    if (special := _special(value)) is not None:
        return special
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > 6:
        digits = (text[:dot] + text[dot + 1 :]).rstrip("0")
        return (
            f"{digits[0]}.{digits[1:] or '0'}e+{dot - 1:02d}"
            if len(digits) > 1
            else f"{digits}e+{dot - 1:02d}"
        )
    return text


def plain_number(value: float) -> str:
    """As Rust's client writes it: whole numbers without a point, no exponents."""
    if (special := _special(value)) is not None:
        return special
    if value == int(value) and abs(value) < 1e18:
        return str(int(value))
    text = repr(float(value))
    return text if "e" not in text else f"{value:.12f}".rstrip("0")


def go_number(value: float) -> str:
    """As Go's ``%v`` writes it: whole numbers without a point, exponents from 1e21 on or below 1e-4."""
    if (special := _special(value)) is not None:
        return special
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return repr(float(value))
