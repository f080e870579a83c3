"""Whose traffic grew: attempts by tenant and class from the gateway's log, now against their own past.

An attempt is logged when it ends, so demand that still waits in a queue is not in it yet. Attempts that failed are no demand:
clients that repeat a refused request would otherwise look like a customer who grew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.stats import dispersion_of_counts, poisson_tail, zeroed
from detectors.window import Window

F = NDArray[np.float64]
NOW_MIN = 3
GAP_MIN = 10
"""As for every normal: the last ten minutes never teach it."""
PAST_MIN = 120
LEAST_PAST_MIN = 10


@dataclass(frozen=True, slots=True)
class Grown:
    """One tenant (or, with an empty tenant, a whole class) of a pool: answered attempts a minute, and how sure the growth is.

    ``share``: its part of what the pool's demand changed by, 0..1 (more than 1 where others went the other way).
    """

    pool: str
    workload_class: str
    tenant: str
    now: float
    before: float
    p: float
    share: float

    @property
    def factor(self) -> float:
        """How many times as much as usual; infinite for somebody new."""
        return self.now / self.before if self.before > 0 else float("inf")

    @property
    def who(self) -> str:
        """``tenant globex``, or ``class batch`` where the log names no tenant."""
        return f"tenant {self.tenant}" if self.tenant else f"class {self.workload_class}"


def grown(window: Window, pool: str, direction: int = 1) -> list[Grown]:
    """Tenants of a pool whose answered attempts went up (``direction`` 1) or down (-1), the largest change first.

    Empty where the gateway's log does not cover the last minutes or less than ten minutes of past.
    """
    view = window.gateway
    if not view.known(pool, NOW_MIN):
        return []
    changes: list[tuple[str, str, float, float, float]] = []
    for k in view.classes(pool):
        for tenant in view.tenants(pool, k):
            n = _answered(
                view.tenant(pool, k, tenant, PAST_MIN), view.tenant(pool, k, tenant, PAST_MIN, "failed")
            )
            past, recent = n[:-GAP_MIN], n[-NOW_MIN:]
            past = past[~np.isnan(past)]
            if len(past) < LEAST_PAST_MIN or np.isnan(recent).any():
                continue
            changes.append(
                (k, tenant, float(recent.mean()), float(past.mean()), _chance(recent, past, direction))
            )
    total = sum(now - before for _, _, now, before, _ in changes)
    out = [
        Grown(pool, k, tenant, now, before, p, (now - before) / total if total * direction > 0 else 0.0)
        for k, tenant, now, before, p in changes
        if (now - before) * direction > 0
    ]
    return sorted(out, key=lambda g: (-abs(g.now - g.before), g.workload_class, g.tenant))


def _answered(n: F, failed: F) -> F:
    out: F = np.maximum(n - zeroed(failed), 0.0)
    return out


def _chance(recent: F, past: F, direction: int) -> float:
    """How likely so many (or so few) attempts are at the past's rate, with the past's over-dispersion."""
    phi = dispersion_of_counts(past)
    k, mean = float(recent.sum()), float(past.mean()) * len(recent)
    # Half a count stands for somebody who was never there: he could have been, once.
    mean = max(mean, 0.5 * len(recent) / max(len(past), 1))
    up = float(poisson_tail(k, mean, phi))
    return up if direction > 0 else float(1.0 - poisson_tail(k + 1, mean, phi))


@dataclass(frozen=True, slots=True)
class Heavy:
    """A tenant whose requests are far longer than the pool's: ``tokens`` (prompt and answer) per attempt."""

    tenant: str
    tokens: float

    @property
    def who(self) -> str:
        """``tenant hugo``, or ``somebody`` where the log names no tenant."""
        return f"tenant {self.tenant}" if self.tenant else "somebody"


def heaviest(window: Window, pool: str, times: float = 5.0) -> Heavy | None:
    """The tenant whose attempts of the last minutes carry the most tokens each, if ``times`` those of the median tenant."""
    view = window.gateway
    if not view.known(pool, NOW_MIN):
        return None
    found = []
    for k in view.classes(pool):
        for tenant in view.tenants(pool, k):
            n = float(np.nansum(view.tenant(pool, k, tenant, NOW_MIN)))
            if n > 0:
                tokens = float(np.nansum(view.tenant(pool, k, tenant, NOW_MIN, "tokens")))
                found.append(Heavy(tenant, tokens / n))
    if len(found) < 2:
        return None
    usual = float(np.median([h.tokens for h in found]))
    top = max(found, key=lambda h: (h.tokens, h.tenant))
    return top if top.tokens >= times * max(usual, 1.0) else None
