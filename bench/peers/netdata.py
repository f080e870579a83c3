"""Netdata's anomaly detection: k-means consensus per dimension, a node's rate of anomalous dimensions (defaults of its ``[ml]``).

Features: differences of 1, means of 3, lags of 5 samples. A model is k-means with two centres; a sample's score is its
mean distance to the centres on the scale between the least and greatest of the training; it is anomalous if every model kept
(up to 18, one every 3 h from the last 6 h, the first after 900 s) scores 99 % or more. A node is anomalous if 1 % of its
dimensions are, on average over 5 minutes. A node here is a replica, a dimension each of its series, buckets too. Netdata counts
seconds, collecting every second; here a sample is 15 s, and the spans in seconds are kept: in 75 minutes there is one
model, not eighteen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.alerts import alerts, firing
from bench.peers.series import COUNTERS, GAUGES, HISTS, STEP, F, Series

DIFF, SMOOTH, LAG = 1, 3, 5
FIRST, EVERY, LONGEST, MODELS = 900.0, 10800.0, 21600.0, 18
SCORE, RATE, GROUPING = 0.99, 0.01, 300.0
SILENCE_OF, SILENCE_IN = 450.0, 900.0
ROUNDS = 25


def features(x: F) -> F:
    """``[dimensions, cells]`` to ``[dimensions, cells, LAG + 1]``; NaN where a sample of the window is missing."""
    moved = np.full_like(x, np.nan)
    moved[:, DIFF:] = x[:, DIFF:] - x[:, :-DIFF]
    pad = np.full((len(x), SMOOTH - 1), np.nan)
    smooth = np.lib.stride_tricks.sliding_window_view(np.hstack((pad, moved)), SMOOTH, axis=1).mean(axis=2)
    pad = np.full((len(x), LAG), np.nan)
    return np.lib.stride_tricks.sliding_window_view(np.hstack((pad, smooth)), LAG + 1, axis=1)


def _norm(x: F) -> F:
    return np.asarray(np.sqrt((x * x).sum(axis=-1)))


def _distances(f: F, centres: F) -> F:
    """Mean distance of ``[dimensions, samples, LAG + 1]`` to the two centres of each dimension."""
    return np.asarray(_norm(f[:, :, None, :] - centres[:, None, :, :]).mean(axis=2))


def train(f: F) -> tuple[F, F, F]:
    """Centres ``[dimensions, 2, LAG + 1]``, least and greatest mean distance. Dimensions with missing samples use the others."""
    ok = np.asarray(~np.isnan(f).any(axis=2))
    filled = np.where(ok[:, :, None], f, 0.0)
    weight = ok.astype(np.float64)
    number = np.maximum(weight.sum(axis=1), 1.0)
    mean = (filled * weight[:, :, None]).sum(axis=1) / number[:, None]
    # First centres: the sample farthest from the mean, and the one farthest from that.
    away = np.where(ok, _norm(filled - mean[:, None, :]), -1.0)
    rows = np.arange(len(f))
    one = filled[rows, away.argmax(axis=1)]
    other = filled[rows, np.where(ok, _norm(filled - one[:, None, :]), -1.0).argmax(axis=1)]
    centres = np.stack((one, other), axis=1)
    for _ in range(ROUNDS):
        nearest = _norm(filled[:, :, None, :] - centres[:, None, :, :]).argmin(axis=2)
        for c in (0, 1):
            share = weight * (nearest == c)
            n = share.sum(axis=1)
            moved = (filled * share[:, :, None]).sum(axis=1) / np.maximum(n, 1.0)[:, None]
            centres[:, c] = np.where(n[:, None] > 0, moved, centres[:, c])
    d = np.where(ok, _distances(filled, centres), np.nan)
    none = ~ok.any(axis=1)
    d[none] = 0.0
    return centres, np.nanmin(d, axis=1), np.nanmax(d, axis=1)


def anomalous(x: F) -> NDArray[np.bool_]:
    """Anomaly bits ``[dimensions, cells]`` of values ``[dimensions, cells]``: all models trained so far agree."""
    f = features(x)
    bits = np.zeros(x.shape, bool)
    trained_at = np.arange(FIRST, x.shape[1] * STEP, EVERY)
    models: list[tuple[F, F, F]] = []
    for i, at in enumerate(trained_at):
        now, until = int(at // STEP), int((trained_at[i + 1] if i + 1 < len(trained_at) else 1e12) // STEP)
        models = [*models, train(f[:, max(0, now - int(LONGEST // STEP)) : now])][-MODELS:]
        part = f[:, now:until]
        agreed = np.asarray(~np.isnan(part).any(axis=2))
        for centres, least, most in models:
            width = np.where(most > least, most - least, np.inf)[:, None]
            agreed &= np.abs(_distances(np.nan_to_num(part), centres) - least[:, None]) / width >= SCORE
        bits[:, now : now + part.shape[1]] = agreed
    return _silenced(bits)


def _silenced(bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A dimension that was anomalous for 450 of 900 s is silenced until it is trained again (here: to the end)."""
    window = int(SILENCE_IN // STEP)
    for begin in range(0, bits.shape[1], window):
        too_often = bits[:, begin : begin + window].sum(axis=1) * STEP >= SILENCE_OF
        bits[too_often, begin + window :] = False
    return bits


def dimensions(series: Series, unit: int) -> F:
    """All series of a replica: gauges, counter and bucket increments, ``[dimensions, cells]``, without those always missing."""
    rows = [series.cube.scalar(n.name)[unit] for n in (*GAUGES, *COUNTERS)]
    for signal in HISTS:
        for key in series.cube.hist_keys(signal):
            rows += list(series.cube.counts(signal, key)[unit].T)
    x = np.asarray(rows, np.float64)
    return np.asarray(x[~np.isnan(x).all(axis=1)])


def judge(series: Series) -> dict[str, list[dict[str, Any]]]:
    """Alerts for nodes whose rate of anomalous dimensions is too high."""
    spans: dict[str, list[tuple[str, float, float]]] = {}
    n = int(GROUPING // STEP)
    for unit, (pool, replica) in enumerate(series.units):
        x = dimensions(series, unit)
        if not len(x):
            continue
        known = np.maximum((~np.isnan(x)).sum(axis=0), 1)
        rate = anomalous(x).sum(axis=0) / known
        total = np.cumsum(np.concatenate((np.zeros(n), rate)))
        mean = (total[n:] - total[:-n]) / n
        spans.setdefault(pool, []).extend((replica, a, b) for a, b in firing(mean >= RATE, STEP, 0.0))
    start = series.start + STEP
    return {
        "Netdata k-means": [a for p, s in spans.items() for a in alerts(start, p, s, "node anomaly rate")]
    }
