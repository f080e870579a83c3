"""Is it load? The rate of bad answers against the load that each request met at admission, without itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence
from detectors.stats import dispersion, ratio_interval
from detectors.window import Window

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
RATIO = 2.0
EPISODES = 5
LEAST_BAD = 15


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """The answer and what it rests on. ``verdict`` None = cannot tell yet; ``why`` says what is missing."""

    verdict: bool | None
    why: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    episodes: int = 0
    bottom: tuple[int, int] = (0, 0)
    top: tuple[int, int] = (0, 0)
    limits: tuple[float, float] = (0.0, 0.0)

    def sentence(self) -> str:
        """For the cause line."""
        if self.ratio is None:
            return f"load: {self.why}"
        says = {True: "it grows with load", False: "it does not depend on load", None: f"load: cannot tell yet ({self.why})"}
        return f"{says[self.verdict]} (top to bottom quarter of load ×{self.ratio:.1f}, {self.low:.1f}–{self.high:.1f})"

    def test(self) -> str:
        """What was tested."""
        return "rate ratio of top to bottom load quarter at admission, by class; permutation of load in time"

    def result(self) -> str:
        """The numbers of the test."""
        if self.ratio is None:
            return self.why
        p = "" if self.p is None else f", permutation p = {self.p:.3f}"
        return f"×{self.ratio:.1f} ({self.low:.1f}–{self.high:.1f}){p}, {self.episodes} load episodes; {self.why}"

    def evidence(self, scope: str, at: float) -> list[Evidence]:
        """Rate at the bottom and the top of load as one line."""
        if self.ratio is None:
            return []
        b, t = self.bottom, self.top
        return [
            Evidence(
                "degraded outputs by load",
                scope,
                float(f"{b[0] / max(b[1], 1):.4g}"),
                float(f"{t[0] / max(t[1], 1):.4g}"),
                None,
                at,
                "share of sampled answers",
                f"bottom quarter of load (≤ {self.limits[0]:.0f} running): {b[0]} of {b[1]}; top quarter (> {self.limits[1]:.0f}): {t[0]} of {t[1]}",
            )
        ]

    def as_json(self) -> dict[str, Any]:
        """For the incident's detail."""
        return {
            "verdict": self.verdict,
            "why": self.why,
            "ratio": self.ratio,
            "low": self.low,
            "high": None if self.high is None or np.isinf(self.high) else self.high,
            "p": self.p,
            "episodes": self.episodes,
            "bottom": list(self.bottom),
            "top": list(self.top),
            "limits": list(self.limits),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LoadVerdict:
        """The inverse of :meth:`as_json`."""
        row = dict(data)
        if row.get("ratio") is not None and row.get("high") is None:
            row["high"] = float("inf")
        for key in ("bottom", "top", "limits"):
            row[key] = tuple(row[key])
        return cls(**row)


def load_at(window: Window, unit: I, t: F) -> F:
    """Running and waiting requests on each request's replica when it was admitted, without itself; NaN where not known.

    ``unit`` are replica indices (-1 unknown), ``t`` admissions. The gauge is read at a scrape, so the two cells around the
    admission are averaged.
    """
    load = _load(window)
    c = (t // window.step).astype(np.intp) - window.cube.first - window.start
    ok = (unit >= 0) & (c >= 0) & (c < load.shape[1])
    u, k = np.where(ok, unit, 0), np.where(ok, c, 0)
    a, b = load[u, np.maximum(k - 1, 0)], load[u, k]
    mean = np.where(np.isnan(a), b, np.where(np.isnan(b), a, (a + b) / 2))
    return np.where(ok, np.maximum(mean - 1.0, 0.0), np.nan)


def unit_of(window: Window, pools: NDArray[np.object_], replicas: NDArray[np.object_]) -> I:
    """Replica index of each row, -1 where the replica is not scraped."""
    at = {(u.pool, u.replica): i for i, u in enumerate(window.units)}
    return np.asarray([at.get((str(p), str(r)), -1) for p, r in zip(pools, replicas, strict=True)], np.intp)


def is_it_load(window: Window, pool: str, rows: I) -> LoadVerdict:
    """Judge the sampled answers ``rows`` (indices into the samples) of one pool, all after the onset."""
    s = window.samples
    bad = s.bad[rows]
    k = int(bad.sum())
    if k < LEAST_BAD:
        return LoadVerdict(None, f"{k} bad answers so far, {LEAST_BAD} are needed to begin with")
    unit = unit_of(window, s.pool[rows], s.replica[rows])
    load = load_at(window, unit, s.admitted[rows])
    known = ~np.isnan(load)
    if known.mean() < 0.5:
        return LoadVerdict(None, "running requests are not exported: the load at admission is unknown")
    rows, load, bad, unit = rows[known], load[known], bad[known], unit[known]
    q1, q3 = (float(x) for x in np.quantile(load, (0.25, 0.75)))
    if not q3 > q1:
        return LoadVerdict(None, "the load hardly changed")
    classes = s.workload_class[rows]
    ratio, bottom, top = _ratio(load, bad, classes, q1, q3)
    if ratio is None:
        return LoadVerdict(None, "too few bad answers at low load")
    block = ((s.ts[rows] - s.ts[rows[0]]) // 600).astype(int)
    phi = _phi(load, bad, block, q1, q3)
    low, high = ratio_interval(int(top[0] / phi), top[1] / phi, int(np.ceil(bottom[0] / phi)), bottom[1] / phi)
    # The stratified ratio moves the interval with it.
    crude = (top[0] / max(top[1], 1)) / max(bottom[0] / max(bottom[1], 1), 1e-12) if bottom[0] else None
    if crude:
        low, high = low * ratio / crude, high * ratio / crude
    since = float(s.admitted[rows].min())
    episodes = load_episodes(window, pool, since)
    p = _permutation(window, rows, unit, bad, classes, ratio)
    base = dict(ratio=ratio, low=low, high=high, p=p, episodes=episodes, bottom=bottom, top=top, limits=(q1, q3))
    if low > RATIO and p is not None and p <= 0.02:
        if episodes >= EPISODES:
            return LoadVerdict(True, "lower bound over 2 and no chance order of load does the same", **base)  # type: ignore[arg-type]
        return LoadVerdict(None, f"{episodes} of {EPISODES} separate load episodes so far", **base)  # type: ignore[arg-type]
    if high < RATIO:
        return LoadVerdict(False, "upper bound under 2", **base)  # type: ignore[arg-type]
    return LoadVerdict(None, f"the interval still spans 2: about {_more(k, ratio)} more bad answers are needed", **base)  # type: ignore[arg-type]


def _more(k: int, ratio: float) -> int:
    """Bad answers still needed until the interval of a ratio this large clears 2 (log-normal width)."""
    gap = abs(np.log(max(ratio, 1e-3) / RATIO))
    need = 4 * 2 * (1.96 / max(gap, 0.1)) ** 2
    return max(5, int(need - k))


def _ratio(
    load: F, bad: NDArray[np.bool_], classes: NDArray[np.object_], q1: float, q3: float
) -> tuple[float | None, tuple[int, int], tuple[int, int]]:
    """Mantel–Haenszel rate ratio of top to bottom quarter over classes, and crude (bad, n) of both quarters."""
    lo, hi = load <= q1, load > q3
    bottom, top = (int(bad[lo].sum()), int(lo.sum())), (int(bad[hi].sum()), int(hi.sum()))
    num = den = 0.0
    for c in sorted({str(x) for x in classes}):
        at = classes == c
        n1, n0 = int((at & hi).sum()), int((at & lo).sum())
        if not n1 or not n0:
            continue
        num += bad[at & hi].sum() * n0 / (n1 + n0)
        den += bad[at & lo].sum() * n1 / (n1 + n0)
    if den <= 0:
        # No bad answer at low load at all: count half of one, which can only make the ratio smaller.
        den = 0.5 * top[1] / max(top[1] + bottom[1], 1)
    return (float(num / den) if num > 0 else None), bottom, top


def _phi(load: F, bad: NDArray[np.bool_], block: NDArray[np.int_], q1: float, q3: float) -> float:
    """Over-dispersion of ten-minute blocks within the same quarter of load."""
    worst = 1.0
    for at in (load <= q1, load > q3):
        k = np.bincount(block[at], weights=bad[at].astype(float), minlength=block.max() + 1)
        n = np.bincount(block[at], minlength=block.max() + 1).astype(float)
        worst = max(worst, dispersion(k, n))
    return min(worst, 5.0)


def _load(window: Window) -> F:
    """Running and waiting requests ``[units, cells]``; NaN only where running is unknown."""
    return window.value("running") + np.nan_to_num(window.value("waiting"))


def load_episodes(window: Window, pool: str, since: float) -> int:
    """Separate spans in which the pool's smoothed load rose over its upper quarter after having been under its median."""
    idx = window.pools.get(pool)
    if idx is None:
        return 0
    series = _load(window)[idx]
    base = (window.cube.first + window.start) * window.step
    series = series[:, max(0, int((since - base) // window.step)) :]
    known = (~np.isnan(series)).any(axis=0)
    total = np.where(known, np.nansum(series, axis=0), np.nan)
    total = total[~np.isnan(total)]
    width = int(180 // window.step)
    if len(total) < 4 * width:
        return 0
    smooth = np.convolve(total, np.ones(width) / width, mode="valid")
    middle, high = np.quantile(smooth, (0.5, 0.75))
    count, armed = 0, True
    for x in smooth:
        if armed and x > high:
            count, armed = count + 1, False
        elif x < middle:
            armed = True
    return count


def _permutation(window: Window, rows: I, unit: I, bad: NDArray[np.bool_], classes: NDArray[np.object_], ratio: float) -> float | None:
    """Share of circular shifts of the load in time (whole minutes, at least five) that give as large a ratio."""
    s = window.samples
    t = s.admitted[rows]
    since, until = float(t.min()), float(s.ts[rows].max())
    span = until - since
    shifts = np.arange(300.0, span - 300.0, 60.0)
    if len(shifts) < 40:
        return None
    if len(shifts) > 200:
        shifts = shifts[np.linspace(0, len(shifts) - 1, 200).astype(int)]
    as_large = 0
    for shift in shifts:
        moved = since + (t - since + shift) % span
        load = load_at(window, unit, moved)
        known = ~np.isnan(load)
        if known.sum() < 100:
            continue
        q1, q3 = np.quantile(load[known], (0.25, 0.75))
        other, _, _ = _ratio(load[known], bad[known], classes[known], float(q1), float(q3))
        as_large += other is not None and other >= ratio
    return (1 + as_large) / (1 + len(shifts))
