"""What became of requests: answered, failed, refused or left by the client, as engines and a gateway count it.

Engines count by HTTP status (vLLM, SGLang) or by error type (Dynamo); status 4xx other than 429 is the client's fault and never a
failure here. Where an engine counts no aborts, those are the HTTP 2xx that no finished request stands behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.attempts import FAILED, LEFT, OK, REFUSED, TIMED_OUT
from detectors.contract import Json, Need
from detectors.normal import GAP_S
from detectors.stats import binomial_tail, dispersion, zeroed
from detectors.window import Window, nansum

F = NDArray[np.float64]
Units = NDArray[np.intp]

_S5 = ("5xx", *(str(s) for s in range(500, 600)))
_S4 = ("4xx", *(str(s) for s in range(400, 500)))
_S2 = ("2xx", *(str(s) for s in range(200, 300)))
BLOCK_MIN = 2
LEAST_PAST = 50
NO_PAST = (1.5, 300.0)
"""Where nothing is known of the past: half a percent of failures is taken for usual."""

NEEDS = (
    Need("answers", "http_responses_total"),
    Need("answers_5xx", "http_responses_total", where=("status", _S5)),
    Need("answers_2xx", "http_responses_total", where=("status", _S2)),
    Need("answers_429", "http_responses_total", where=("status", ("429",))),
    Need("errors", "errors_total"),
    Need("errors_4xx", "errors_total", where=("error", _S4)),
    Need("rejected", "admission_rejections_total"),
    Need("aborted", "aborted_total"),
    Need("finished", "request_success_total"),
    Need("finished_error", "request_success_total", where=("finish_reason", ("error", "abort"))),
)


@dataclass(frozen=True)
class Answers:
    """Per replica or per cell: requests that ended, ``failed`` (5xx), ``refused`` (429), ``left`` (aborted), ``done`` (answered).

    NaN where the engine does not say.
    """

    total: F
    failed: F
    refused: F
    left: F
    done: F

    def of(self, units: Units) -> Answers:
        """The sum over some replicas, as arrays without that axis."""
        return Answers(
            *(nansum(getattr(self, k)[units].T) for k in ("total", "failed", "refused", "left", "done"))
        )


def engines(window: Window, cells: int | None = None, *, each: bool = False) -> Answers:
    """What the engines counted over the last ``cells`` cells, ``[units]``; ``each``: cell by cell, ``[units, cells]``."""

    key = ("answers", cells, each)
    found = window.memo.get(key)
    if found is None:
        found = window.memo[key] = _engines(window, cells, each)
    return found


def _engines(window: Window, cells: int | None, each: bool) -> Answers:
    def get(name: str) -> F:
        x = window.value(name, cells)
        return x if each else nansum(x)

    answers, finished = get("answers"), get("finished")
    by_status = np.where(np.isnan(answers), np.nan, zeroed(get("answers_5xx")))
    errors = get("errors")
    by_type = np.where(np.isnan(errors), np.nan, np.maximum(errors - zeroed(get("errors_4xx")), 0.0))
    failed = np.fmax(by_status, by_type)
    refused = np.fmax(np.where(np.isnan(answers), np.nan, zeroed(get("answers_429"))), get("rejected"))
    done = np.maximum(finished - zeroed(get("finished_error")), 0.0)
    ok = np.where(np.isnan(answers), np.nan, zeroed(get("answers_2xx")))
    left = np.where(np.isnan(get("aborted")), np.maximum(ok - done, 0.0), get("aborted"))
    other = done + zeroed(failed) + zeroed(left)
    return Answers(np.where(np.isnan(answers), other, answers), failed, refused, left, done)


@dataclass(frozen=True)
class Seen:
    """What a gateway's log says of a pool over some minutes; a ``known`` of False means there is no log of all of them."""

    known: bool
    total: float = float("nan")
    failed: float = float("nan")
    refused: float = float("nan")
    left: float = float("nan")
    done: float = float("nan")
    statuses: tuple[tuple[int, int], ...] = ()

    @property
    def said(self) -> str:
        """``502 ×52, 499 ×3``: the statuses beside success."""
        return ", ".join(f"{s} ×{n}" for s, n in self.statuses if s not in OK) or "none"


def gateway(window: Window, pool: str, minutes: int) -> Seen:
    """The last whole minutes of a pool in the gateway's log."""
    log = window.gateway
    if not log.known(pool, minutes):
        return Seen(False)

    def count(status: frozenset[int] | None = None) -> float:
        return float(log.count(pool, minutes, status).sum())

    return Seen(
        True,
        count(),
        count(FAILED),
        count(REFUSED),
        count(LEFT | TIMED_OUT),
        count(OK),
        tuple(log.by_status(pool, minutes).items()),
    )


# ---------------------------------------------------------------------- the past


def usable_minutes(window: Window, pool: str) -> NDArray[np.bool_]:
    """Which of the window's whole minutes may teach what is normal, oldest first: known to the log, most replicas usable, and
    not among the last ten."""
    log = window.gateway
    count = max(0, min(log.stop, int((window.end - window.time(-1)) // 60)))
    ok = np.zeros(count, bool)
    if not count:
        return ok
    per = max(1, int(60 // window.step))
    usable = window.usable[window.pools[pool]].mean(axis=0) if pool in window.pools else np.zeros(0)
    last = int((window.end - log.end) // window.step)
    tail = usable[: len(usable) - last] if last else usable
    whole = min(count, len(tail) // per)
    if whole:
        ok[count - whole :] = tail[len(tail) - whole * per :].reshape(whole, per).mean(axis=1) >= 0.5
    gap = int(GAP_S // 60)
    ok[max(0, count - gap) :] = False
    return ok


def learn_share(k: F, n: F) -> list[float]:
    """Failures, answers, and the over-dispersion of blocks, from ``[blocks]``."""
    good = ~np.isnan(k) & ~np.isnan(n)
    return [float(k[good].sum()), float(n[good].sum()), dispersion(k[good], n[good])]


def learn_failures(window: Window, as_of: float) -> Json:
    """Failed and all answers of each replica and (gateway) each pool over the usable past, with over-dispersion."""
    before: Json | None = window.memo.get(("failures",))
    if before is not None:
        return before
    out: Json = {"as_of": as_of, "units": [u.key for u in window.units], "engine": [], "gateway": {}}
    gap, per = int(GAP_S // window.step), int(120 // window.step)
    a = engines(window, each=True)
    width = max(0, a.total.shape[1] - gap) // per * per
    usable = window.usable[:, :width]

    def blocks(x: F) -> F:
        y = np.where(usable, x[:, :width], np.nan)
        return nansum(y.reshape(len(y), width // per, per)) if width else np.zeros((len(y), 0))

    k, n = blocks(a.failed), blocks(a.total)
    phi = np.ones(len(window.units))
    for idx in window.pools.values():
        phi[idx] = dispersion(k[idx].ravel(), zeroed(n[idx]).ravel())
    known = ~np.isnan(k) & ~np.isnan(n)
    K = np.where(known, k, 0.0).sum(axis=1)
    N = np.where(known, n, 0.0).sum(axis=1)
    out["engine"] = [[float(x), float(y), float(z)] for x, y, z in zip(K, N, phi, strict=True)]
    for pool in window.pools:
        ok = usable_minutes(window, pool)
        log = window.gateway
        count = len(ok) // BLOCK_MIN * BLOCK_MIN
        if not count or pool not in log.of.pools:
            continue
        keep = ok[len(ok) - count :]
        fails = np.where(keep, log.count(pool, count, FAILED), np.nan).reshape(-1, BLOCK_MIN)
        total = np.where(keep, log.count(pool, count), np.nan).reshape(-1, BLOCK_MIN)
        out["gateway"][pool] = learn_share(nansum(fails), nansum(total))
    window.memo[("failures",)] = out
    return out


def past(baseline: Json, window: Window) -> tuple[F, F, F]:
    """K failures of N answers and over-dispersion per replica, aligned to the window; a young one borrows its pool's."""
    at = dict(zip(baseline.get("units", []), baseline.get("engine", []), strict=True))
    rows = [at.get(u.key, [0.0, 0.0, 1.0]) for u in window.units]
    x = np.asarray(rows, np.float64).reshape(-1, 3)
    K, N, phi = x[:, 0], x[:, 1], x[:, 2]
    for idx in window.pools.values():
        young = idx[N[idx] < LEAST_PAST]
        if len(young) and N[idx].sum() > 0:
            K[young], N[young] = K[idx].sum() / len(idx), N[idx].sum() / len(idx)
    none = N < LEAST_PAST
    return np.where(none, NO_PAST[0], K), np.where(none, NO_PAST[1], N), phi


def pool_past(baseline: Json, pool: str) -> Sequence[float]:
    """K failures of N attempts and over-dispersion of a pool in the gateway's log."""
    known: Sequence[float] = baseline.get("gateway", {}).get(pool, [0.0, 0.0, 1.0])
    return known if known[1] >= LEAST_PAST else [*NO_PAST, known[2]]


def beyond(
    k: F | float, n: F | float, K: F | float, N: F | float, phi: F | float, least: float
) -> NDArray[np.bool_]:
    """Whether ``k`` failures of ``n`` are beyond the past: at least five, at least ``least`` and five times the past share, and
    by chance (conditional binomial) less often than once in a million."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share, before = np.divide(k, n), np.divide(K, N)
        p = binomial_tail(zeroed(k), zeroed(n), K, N, phi)
        out: NDArray[np.bool_] = (np.asarray(k) >= 5) & (share >= np.maximum(least, 5 * before)) & (p < 1e-6)
    return out
