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
GRID_S = 5.0
UNFINISHED_S = 120.0


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
            return self.why if self.verdict is False else f"load: {self.why}"
        says = {
            True: "it grows with load",
            False: "it does not depend on load",
            None: f"load: cannot tell yet ({self.why})",
        }
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
                f"bottom quarter of load (≤ {self.limits[0]:.2f} of the mean): {b[0]} of "
                f"{b[1]}; top quarter (> {self.limits[1]:.2f}): {t[0]} of {t[1]}",
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


@dataclass(frozen=True)
class LoadSeries:
    """Load of each replica every five seconds, ``[units, steps]`` from ``start``: 1 is its pool's mean.

    Two noisy witnesses of the same thing are averaged, which keeps errors of measurement from watering down a dependence:
    running + waiting as scraped, and the sampled requests in flight. A request is read at the step before its admission, so it
    does not count itself.
    """

    start: float
    values: F

    def at(self, unit: I, t: F) -> F:
        """Load on each request's replica when it was admitted; NaN where not known."""
        k = ((t - self.start) // GRID_S).astype(np.intp)
        ok = (unit >= 0) & (k >= 0) & (k < self.values.shape[1])
        return np.where(ok, self.values[np.where(ok, unit, 0), np.where(ok, k, 0)], np.nan)


def load_series(window: Window, pool: str, since: float) -> LoadSeries:
    """The load of a pool's replicas from ``since`` to the end of the window."""
    idx = window.pools.get(pool, np.zeros(0, np.intp))
    grid = np.arange(since // GRID_S * GRID_S, window.end, GRID_S)
    gauge, flight = np.full((2, len(window.units), len(grid)), np.nan)
    load = _load(window)
    mids = (window.cube.first + window.start + np.arange(load.shape[1]) + 0.5) * window.step
    s = window.samples
    rows = np.arange(s.since(since - 3600), s.upto(window.end))
    rows = rows[s.pool[rows] == s.code(pool)]
    for i in idx:
        known = ~np.isnan(load[i])
        if known.sum() >= 2:
            gauge[i] = np.interp(grid, mids[known], load[i][known])
        mine = rows[s.replica[rows] == s.code(window.units[i].replica)]
        if len(mine):
            begun = np.searchsorted(np.sort(s.admitted[mine]), grid, "right")
            flight[i] = begun - np.searchsorted(np.sort(s.ts[mine]), grid, "right")
    parts = []
    for x in (gauge, flight):
        known = x[idx][~np.isnan(x[idx])]
        if len(known) and known.mean() > 0:
            parts.append(x / known.mean())
    if not parts:
        return LoadSeries(float(since), np.full((len(window.units), 1), np.nan))
    stack = np.stack(parts)
    seen = (~np.isnan(stack)).sum(axis=0)
    total = np.where(seen > 0, np.nansum(stack, axis=0) / np.maximum(seen, 1), np.nan)
    return LoadSeries(float(grid[0]), total)


def unit_of(window: Window, rows: I) -> I:
    """Replica index of each sampled answer, -1 where its replica is not scraped."""
    s = window.samples
    table = np.full((len(s.names) + 1, 2), -1, np.intp)
    at: dict[tuple[int, int], int] = {}
    for i, u in enumerate(window.units):
        pool, replica = s.code(u.pool), s.code(u.replica)
        at[pool, replica] = i
        if replica >= 0:
            # Names are unique within a pool; where two pools share one, the slow way below decides.
            table[replica] = (-2, i) if table[replica, 1] >= 0 else (pool, i)
    pool_of, unit = table[s.replica[rows], 0], table[s.replica[rows], 1]
    out = np.where(pool_of == s.pool[rows], unit, -1)
    for k in np.flatnonzero(pool_of == -2):
        out[k] = at.get((int(s.pool[rows[k]]), int(s.replica[rows[k]])), -1)
    return out


def is_it_load(window: Window, pool: str, rows: I) -> LoadVerdict:
    """Judge the sampled answers ``rows`` (indices into the samples) of one pool, all after the onset."""
    s = window.samples
    bad = s.bad[rows]
    k = int(bad.sum())
    if k < LEAST_BAD:
        return LoadVerdict(None, f"{k} bad answers so far, {LEAST_BAD} are needed to begin with")
    # The latest admissions do not yet know who was in flight beside them: those requests have not finished.
    rows = rows[s.admitted[rows] <= window.end - UNFINISHED_S]
    if not len(rows):
        return LoadVerdict(None, "too early")
    unit = unit_of(window, rows)
    bad = s.bad[rows]
    since = float(s.admitted[rows].min())
    series = load_series(window, pool, since)
    load = series.at(unit, s.admitted[rows])
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
    low, high = ratio_interval(
        int(top[0] / phi), top[1] / phi, int(np.ceil(bottom[0] / phi)), bottom[1] / phi
    )
    # The stratified ratio moves the interval with it.
    crude = (top[0] / max(top[1], 1)) / max(bottom[0] / max(bottom[1], 1), 1e-12) if bottom[0] else None
    if crude:
        low, high = low * ratio / crude, high * ratio / crude
    episodes = load_episodes(window, pool, since)
    p = _permutation(window, series, rows, unit, bad, classes, ratio) if low > RATIO else None

    def say(verdict: bool | None, why: str) -> LoadVerdict:
        return LoadVerdict(verdict, why, ratio, low, high, p, episodes, bottom, top, (q1, q3))

    if low > RATIO and p is not None and p <= 0.02:
        if episodes >= EPISODES:
            return say(True, "lower bound over 2 and no chance order of load does the same")
        return say(None, f"{episodes} of {EPISODES} separate load episodes so far")
    if high < RATIO:
        return say(False, "upper bound under 2")
    return say(None, f"the interval still spans 2: about {_more(k, ratio)} more bad answers are needed")


def _more(k: int, ratio: float) -> int:
    """Bad answers still needed until the interval of a ratio this large clears 2 (log-normal width)."""
    gap = abs(np.log(max(ratio, 1e-3) / RATIO))
    need = 4 * 2 * (1.96 / max(gap, 0.1)) ** 2
    return max(5, int(need - k))


def _ratio(
    load: F, bad: NDArray[np.bool_], classes: NDArray[np.int32], q1: float, q3: float
) -> tuple[float | None, tuple[int, int], tuple[int, int]]:
    """Mantel–Haenszel rate ratio of top to bottom quarter over classes, and crude (bad, n) of both quarters."""
    lo, hi = load <= q1, load > q3
    bottom, top = (int(bad[lo].sum()), int(lo.sum())), (int(bad[hi].sum()), int(hi.sum()))
    num = den = 0.0
    for c in np.unique(classes):
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
        n = np.bincount(block[at], minlength=block.max() + 1)
        worst = max(worst, dispersion(k.astype(np.float64), n.astype(np.float64)))
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


def _permutation(
    window: Window,
    series: LoadSeries,
    rows: I,
    unit: I,
    bad: NDArray[np.bool_],
    classes: NDArray[np.int32],
    ratio: float,
) -> float | None:
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
        load = series.at(unit, moved)
        known = ~np.isnan(load)
        if known.sum() < 100:
            continue
        q1, q3 = np.quantile(load[known], (0.25, 0.75))
        other, _, _ = _ratio(load[known], bad[known], classes[known], float(q1), float(q3))
        as_large += other is not None and other >= ratio
        if as_large >= 0.05 * len(shifts):
            break
    return (1 + as_large) / (1 + len(shifts))
