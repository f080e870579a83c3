"""How numbers are written in findings: short, with unit, never more digits than are known."""

from __future__ import annotations

from collections.abc import Iterable


def seconds(x: float | None) -> str:
    """``45 ms``, ``2.1 s``, ``156 s``, ``12 min``.

    >>> seconds(0.045), seconds(2.14), seconds(156.2), seconds(4000)
    ('45 ms', '2.1 s', '156 s', '67 min')
    """
    if x is None or x != x:
        return "unknown"
    if x < 0.9995:
        return f"{x * 1000:.0f} ms"
    if x < 9.95:
        return f"{x:.1f} s"
    return f"{x:.0f} s" if x < 600 else f"{x / 60:.0f} min"


def percent(x: float | None) -> str:
    """``96 %``, ``3.4 %``, ``0.08 %``.

    >>> percent(0.957), percent(0.034), percent(0.0008)
    ('96 %', '3.4 %', '0.08 %')
    """
    if x is None or x != x:
        return "unknown"
    p = x * 100
    return f"{p:.0f} %" if p >= 9.95 or p == 0 else f"{p:.1f} %" if p >= 0.95 else f"{p:.2g} %"


def number(x: float | None) -> str:
    """``48,300``, ``23``, ``1.7``, ``0.04``.

    >>> number(48300.4), number(23.1), number(1.7), number(0.041)
    ('48,300', '23', '1.7', '0.041')
    """
    if x is None or x != x:
        return "unknown"
    if abs(x) >= 1000:
        return f"{float(f'{x:.3g}'):,.0f}"
    return f"{x:.0f}" if abs(x) >= 9.95 else f"{x:.2g}"


def times(x: float | None) -> str:
    """``×3.2`` or ``×16``."""
    return "unknown" if x is None or x != x else f"×{x:.0f}" if x >= 9.95 else f"×{x:.1f}"


def names(items: Iterable[str], most: int = 4) -> str:
    """``a, b and 3 more``.

    >>> names(["a", "b"]), names("abcdef")
    ('a and b', 'a, b, c, d and 2 more')
    """
    known = list(items)
    if len(known) > most:
        return f"{', '.join(known[:most])} and {len(known) - most} more"
    return " and ".join([", ".join(known[:-1]), known[-1]]) if len(known) > 1 else "".join(known)


def rounded(x: float | None) -> float | None:
    """Six significant digits for evidence; None where nothing is known.

    >>> rounded(0.123456789), rounded(float("nan"))
    (0.123457, None)
    """
    return None if x is None or x != x else float(f"{x:.6g}")
