"""KV eviction storm: the cache is too small for the sessions in flight, and evicted blocks are computed again.

Idea
    The signature is *work done twice*: throughput is lost although every GPU is busy. One number never proves it (a high KV usage
    is healthy, a cold cache after a restart is not a storm), so three things must hold together against the replica's own normal.

Formula
    Over the last four minutes, per replica, ``x0`` = own normal (median of earlier blocks), ``z`` in robust standard deviations::

        recompute   prefix hits fell  (z <= -5 and computed tokens per request >= 2 x0)
                    or preemptions per finished request rose  (Poisson tail < 1e-6 against the own rate, >= 5 in 100, KV >= 85 %)
        cost        prefill itself takes longer: TTFT minus queue >= 2 x0   (hits fell; or hits fell by 50 points,
                    computed tokens >= 3 x0, time per output >= 1.5 x0)
                    KV is full                                              (preemptions)
        progress    completions per running request <= 0.7 x0
        pressure    running requests >= 1.7 x0; demand, crowding or longer prompts not later than the hits went
                    (else it is prefix_cache_loss); at least a fifth of the KV in use
        place       not on replicas that only decode (full ones are prefill_decode_imbalance)

    Early warning (ticket, same incident): the same signs at lower levels, or sessions that outgrow the cache
    (``storm_warning``): r = capacity / (sessions x context) <= 1.1 and <= 0.85 of what is usual, while running requests
    (x 1.5) and demand (x 1.25) or the length of prompts (x 1.3) have grown.

Signals
    prefix_cache_hit_tokens_total, prefix_cache_queries_tokens_total, preemptions_total / retractions, ttft_seconds,
    queue_time_seconds, request_success_total, requests_running, kv_cache_usage_ratio, kv_cache_capacity; for the early
    warning one of kv_block_idle_before_evict_seconds with kv_block_reuse_gap_seconds, sampled outputs with session ids,
    sessions_running.

Look-alikes
    capacity_shortfall (requests wait for a slot, prefill itself stays quick), prefix_cache_loss (hits gone without pressure),
    warm_up (hits gone after a restart), tight but healthy cache (high usage, nothing redone).

Source
    incidents.md B1-B3 and the cases it cites: vllm#21793, sglang#31230, sglang#26248.
"""

from __future__ import annotations

import numpy as np

from detectors.contract import Json, Verdict
from detectors.measures import ITL, QUEUE, TTFT, needs
from detectors.normal import Normal, learn
from detectors.order import Order, watch
from detectors.stats import zeroed
from detectors.storm_signs import FLOORS, signs
from detectors.storm_warning import GAP, IDLE, learn_room
from detectors.storm_words import KIND, tell
from detectors.window import Window, nansum


class KvEvictionStorm:
    """See the module's docstring."""

    kind = KIND
    needs = needs(
        "running",
        "waiting",
        "kv",
        "kv_capacity",
        "hits",
        "queries",
        "preempted",
        "retracted",
        "finished",
        "evicted",
        "generated",
        "sessions_running",
    )
    hists = (
        TTFT,
        f"{QUEUE}:mean",
        f"{ITL}:mean",
        f"{IDLE}:mean",
        f"{GAP}:mean",
        "kv_transfer_time_seconds:mean",
    )

    def __init__(self, span_s: float = 240.0, least_requests: int = 8) -> None:
        self.span_s = span_s
        self.least_requests = least_requests

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of every measure, the plain rate of preemptions per finished request, and the usual room."""
        out = learn(history, as_of, FLOORS, block_s=self.span_s, min_requests=self.least_requests)
        usable = history.usable.copy()
        usable[:, max(0, usable.shape[1] - int(600 // history.step)) :] = False
        pre = np.fmax(history.value("preempted"), history.value("retracted"))
        out["preempted"] = zeroed(nansum(np.where(usable, pre, np.nan))).tolist()
        out["finished"] = zeroed(nansum(np.where(usable, history.value("finished"), np.nan))).tolist()
        out["room"] = {p: learn_room(history, idx, as_of - 600.0) for p, idx in history.pools.items()}
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that storms or is about to."""
        normal = Normal.of(baseline, window)
        order = Order.of(state, window)
        watch(order, window, normal)
        seen = signs(window, baseline, normal, order, self.span_s, self.least_requests)
        told = (tell(window, normal, seen, order, pool, idx) for pool, idx in window.pools.items())
        return Verdict([f for f in told if f is not None], order.to_json(window))
