"""The tail test: how many requests were late, against the objective and against the replica's own past.

``p`` is the conditional (exact) binomial: given all late requests of window and baseline together, how likely is it that so many
fall into the window? The measured over-dispersion of the past divides the counts, because late requests come in clumps. No
quantile is interpolated and no ratio of p99s is formed: those alarm falsely in a fifth of quiet windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.buckets import quantile
from detectors.contract import Json, Objective
from detectors.late import all_late
from detectors.normal import GAP_S
from detectors.stats import binomial_tail, dispersion, zeroed
from detectors.window import Window, nansum

F = NDArray[np.float64]


@dataclass(frozen=True)
class Tail:
    """Per replica: late ``k`` of ``n`` now, ``share``, own past ``past`` share, and ``p`` against that past."""

    objective: Objective
    edge: float
    k: F
    n: F
    p: F
    K: F
    N: F
    phi: F

    @property
    def past(self) -> F:
        """Late share of the own past."""
        return self.K / np.maximum(self.N, 1)

    @property
    def share(self) -> F:
        """Late share now; NaN without requests."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.n > 0, self.k / self.n, np.nan)

    @property
    def burn(self) -> F:
        """How many times faster than allowed the error budget burns."""
        return self.share / self.objective.budget


def learn_tail(window: Window, as_of: float, signal: str = "ttft_seconds") -> Json:
    """Late and total per replica over the usable history, and the over-dispersion of two-minute blocks, by objective."""
    gap, cells = int(GAP_S // window.step), int(120 // window.step)
    out: Json = {"as_of": as_of, "units": [u.key for u in window.units], "late": {}}
    usable = window.usable[:, : max(0, window.usable.shape[1] - gap)]
    for x in all_late(window, None, signal):
        late = np.where(usable, x.late[:, : usable.shape[1]], np.nan)
        total = np.where(usable, x.total[:, : usable.shape[1]], np.nan)
        count = usable.shape[1] // cells
        shape = (len(window.units), count, cells)
        kb = nansum(late[:, : count * cells].reshape(shape)) if count else np.zeros((len(window.units), 0))
        nb = nansum(total[:, : count * cells].reshape(shape)) if count else np.zeros((len(window.units), 0))
        phi = np.ones(len(window.units))
        for idx in window.pools.values():
            phi[idx] = dispersion(kb[idx], zeroed(nb[idx]))
        K, N = zeroed(nansum(late)), zeroed(nansum(total))
        for idx in window.pools.values():
            # A replica that has served little borrows its pool's past.
            young = idx[N[idx] < 100]
            if len(young) and N[idx].sum() > 0:
                K[young], N[young] = K[idx].sum() / len(idx), N[idx].sum() / len(idx)
        out["late"][x.objective.name] = [K.tolist(), N.tolist(), phi.tolist()]
    return out


def tails(window: Window, baseline: Json, cells: int, signal: str = "ttft_seconds") -> list[Tail]:
    """The tail of every objective over the last ``cells`` cells."""
    at = {k: i for i, k in enumerate(baseline.get("units", []))}
    order = np.asarray([at.get(u.key, -1) for u in window.units], np.intp)
    out = []
    for x in all_late(window, cells, signal):
        k, n = zeroed(nansum(x.late)), zeroed(nansum(x.total))
        known = baseline.get("late", {}).get(x.objective.name, [[], [], []])
        K, N, phi = (
            np.where(order >= 0, np.asarray(v or [d])[np.maximum(order, 0)], d)
            for v, d in zip(known, (0.0, 0.0, 1.0), strict=True)
        )
        # Without a past the objective itself is the reference: a promise of 99 % stands for 1 late in 100.
        none = N < 50
        K, N = np.where(none, x.objective.budget * 300, K), np.where(none, 300.0, N)
        p = binomial_tail(k, n, K, N, phi)
        out.append(Tail(x.objective, x.edge, k, n, p, K, N, phi))
    return out


@dataclass(frozen=True, slots=True)
class Burn:
    """Late requests of some replicas together, for the objective that burns fastest."""

    objective: Objective
    k: float
    n: float
    p: float
    burn: float


def pool_burn(window: Window, baseline: Json, cells: int, units: NDArray[np.intp]) -> Burn | None:
    """The objective that burns fastest on some replicas over the last ``cells`` cells; None without requests."""
    out: list[Burn] = []
    for t in tails(window, baseline, cells):
        k, n = float(t.k[units].sum()), float(t.n[units].sum())
        if n <= 0:
            continue
        p = float(binomial_tail(k, n, t.K[units].sum(), t.N[units].sum(), float(t.phi[units].max())))
        out.append(Burn(t.objective, k, n, p, k / n / t.objective.budget))
    return max(out, key=lambda b: b.burn, default=None)


def p99_text(window: Window, units: NDArray[np.intp], workload_class: str, cells: int, signal: str) -> str:
    """The p99 of a class over some replicas and the last cells, as the screens write it."""
    hists = []
    for key in window.hist_keys(signal):
        if key[0] == workload_class:
            c = np.nansum(window.counts(signal, key, cells)[units], axis=(0, 1))
            if c.sum() > 0:
                hists.append((key[1], c.astype(np.int64)))
    if not hists:
        return ""
    return str(quantile(hists, 0.99, min_n=100).text("s"))
