"""An agent's task is a chain of turns: how likely it stays clean, measured on sessions or, failing that, from the rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from detectors.quality.rates import exact

TURNS = (1, 5, 10, 20, 50)
LEAST_AT_RISK = 200


@dataclass(frozen=True, slots=True)
class Cascade:
    """Chance that a task of ``n`` turns has no bad one, per class: ``clean[n] = (value, low, high)``.

    ``measured`` on sessions (discrete-time survival over turn numbers; a turn that was not sampled is not at risk, a session
    that ends is censored); otherwise ``(1 - p)^n`` from the rate, which supposes that turns are independent. ``after`` =
    (bad, of) sampled turns that follow a bad one of their session, None where there was none. ``turns`` were looked at.
    """

    class_: str
    measured: bool
    turns: int
    clean: dict[int, tuple[float, float, float]]
    after: tuple[int, int] | None


def cascades(
    counts: Iterable[tuple[str, int | None, int]],
    bad_sessions: Iterable[tuple[str, str, int | None, float, bool]],
) -> list[Cascade]:
    """From outputs per (class, turn), and all turns of the sessions that went bad (by class, session, turn, time).

    Turns after a session's first bad one leave the set at risk: what they tell is ``after``.
    """
    risk: dict[str, dict[int, int]] = {}
    totals: Counter[str] = Counter()
    for class_, turn, n in counts:
        totals[class_] += n
        if turn is not None:
            mine = risk.setdefault(class_, {})
            mine[turn] = mine.get(turn, 0) + n
    events: dict[str, Counter[int]] = {}
    first: Counter[str] = Counter()
    later: Counter[str] = Counter()
    later_bad: Counter[str] = Counter()
    gone: tuple[str, str] | None = None
    for class_, session, turn, _, bad in bad_sessions:
        if gone == (class_, session):
            later[class_] += 1
            later_bad[class_] += bad
            if turn is not None:
                risk[class_][turn] -= 1
        elif bad:
            gone = (class_, session)
            first[class_] += 1
            if turn is not None:
                events.setdefault(class_, Counter())[turn] += 1
    out = []
    for class_ in sorted(totals):
        after = (later_bad[class_], later[class_]) if later[class_] else None
        at_risk = risk.get(class_, {})
        measured = at_risk.get(min(at_risk, default=0), 0) >= LEAST_AT_RISK
        clean = _survival(at_risk, events.get(class_, Counter()), min(at_risk)) if measured else {}
        if not clean:
            clean, measured = independent(first[class_], totals[class_] - later[class_]), False
        out.append(Cascade(class_, measured, totals[class_], clean, after))
    return out


def _survival(
    at_risk: Mapping[int, int], events: Mapping[int, int], first: int
) -> dict[int, tuple[float, float, float]]:
    """Kaplan–Meier over turn numbers with Greenwood's variance on the log scale; turns as far as enough are at risk."""
    out: dict[int, tuple[float, float, float]] = {}
    alive, spread = 1.0, 0.0
    k = n = 0
    for done, turn in enumerate(range(first, first + max(TURNS)), 1):
        risk, bad = at_risk.get(turn, 0), events.get(turn, 0)
        if risk < LEAST_AT_RISK:
            break
        k, n = k + bad, n + risk
        alive *= 1 - bad / risk
        if bad < risk:
            spread += bad / (risk * (risk - bad))
        if done in TURNS:
            if k < 5:
                # With hardly an event the exact bound of the hazard is the honest one.
                r = exact(k, n)
                out[done] = (alive, (1 - r.high) ** done, (1 - r.low) ** done)
            else:
                half = 1.96 * spread**0.5
                out[done] = (alive, max(0.0, alive * (1 - half)), min(1.0, alive * (1 + half)))
    return out


def independent(bad: int, outputs: int) -> dict[int, tuple[float, float, float]]:
    """``(1 - p)^n`` with the exact interval of ``p``; empty without outputs."""
    if not outputs:
        return {}
    r = exact(bad, outputs)
    return {n: ((1 - r.value) ** n, (1 - r.high) ** n, (1 - r.low) ** n) for n in TURNS}
