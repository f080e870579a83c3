"""Poisson regression of rare events with an intercept for every stratum, which conditioning removes.

Given how many bad outputs a stratum (class, prompt length, model, release) has, where they fall is multinomial with weights
``n exp(x beta)``: the stratum's own rate cancels, so a class that is worse *and* meets more load confounds nothing, and
any number of strata costs nothing. Standard errors are robust to clusters: each cluster is left out once (one-step CR3), which
also holds for few clusters of unequal size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
RIDGE = 1.0 / 25.0
"""Weak prior (standard deviation 5 on the log scale): no rate ratio runs away where a group has no bad output at all."""


@dataclass(frozen=True)
class Fit:
    """``beta[p]``; ``v[p, p]`` its model variance; ``loglik`` up to a constant; what clusters need to be left out."""

    beta: F
    v: F
    loglik: float
    score: F
    centred: F
    mu: F

    def cluster_variance(self, cluster: I) -> F:
        """Variance ``[p, p]`` by leaving out each cluster once; at least two clusters, else the model's."""
        size = int(cluster.max(initial=-1)) + 1
        if size < 2:
            return self.v
        p = len(self.beta)
        s = np.stack([np.bincount(cluster, self.score[:, j], size) for j in range(p)], axis=1)
        h = np.empty((size, p, p))
        for i in range(p):
            for j in range(i, p):
                h[:, i, j] = h[:, j, i] = np.bincount(
                    cluster, self.mu * self.centred[:, i] * self.centred[:, j], size
                )
        total = np.linalg.inv(self.v)
        used = np.abs(s).sum(axis=1) + np.einsum("gii->g", h) > 0
        left = total[None] - h[used] + 1e-9 * np.eye(p)
        moved = np.linalg.solve(left, s[used][:, :, None])[:, :, 0]
        g = int(used.sum())
        if g < 2:
            return self.v
        return np.asarray((g - 1) / g * moved.T @ moved, np.float64)


def fit(k: F, n: F, stratum: I, x: F) -> Fit | None:
    """Newton's method; ``x`` is ``[cells, p]``. None where no stratum has both a bad output and a contrast."""
    size = int(stratum.max(initial=-1)) + 1
    total = np.bincount(stratum, k, size)
    p = x.shape[1]
    beta = np.zeros(p)
    if total.sum() <= 0:
        return None

    def at(b: F) -> tuple[float, F, F]:
        e = n * np.exp(np.clip(x @ b, -40, 40))
        s = np.bincount(stratum, e, size)
        share = e / np.maximum(s[stratum], 1e-300)
        ll = float(k @ np.clip(x @ b, -40, 40) - total @ np.log(np.maximum(s, 1e-300)))
        mu = total[stratum] * share
        mean = np.stack([np.bincount(stratum, share * x[:, j], size) for j in range(p)], axis=1)
        return ll - 0.5 * RIDGE * float(b @ b), mu, x - mean[stratum]

    ll, mu, centred = at(beta)
    for _ in range(60):
        h = (centred * mu[:, None]).T @ centred + RIDGE * np.eye(p)
        step = np.linalg.solve(h, centred.T @ (k - mu) - RIDGE * beta)
        size_of_step = 1.0
        while size_of_step > 1e-4:
            tried = at(beta + size_of_step * step)
            if tried[0] >= ll - 1e-9:
                break
            size_of_step /= 2
        beta = beta + size_of_step * step
        ll, mu, centred = tried
        if np.abs(size_of_step * step).max() < 1e-7:
            break
    h = (centred * mu[:, None]).T @ centred + RIDGE * np.eye(p)
    return Fit(beta, np.asarray(np.linalg.inv(h), np.float64), ll, (k - mu)[:, None] * centred, centred, mu)
