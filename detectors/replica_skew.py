"""Load skew: work is unevenly placed on replicas, or on the ranks inside one, while others have nothing to do.

Idea
    If everybody together could carry the load and one of them queues, more capacity would not help: placement is wrong. The
    mean of a pool hides it, and so does the sum over the ranks of a replica.

Formula
    Load = running + waiting over two minutes (and over the last one)::

        replicas  hot: load more than twice the pool's mean (two replicas: three times the other's), >= 4, twice its own usual;
                  some peer below a quarter of the mean and half its usual; its share of new work (first tokens and growth of the
                  queue) >= 1.5 times its own usual share; no restart in the pool in ten minutes
        ranks     the same test among the ranks of a replica, without a past: ranks are balanced by design

    Said at once while late requests burn the budget or the hot one queues, otherwise after ten minutes (sessions come in lumps).
    Page while late requests burn the budget >= 6 times too fast or the hot one queues; otherwise a ticket.

Signals
    requests_running, requests_waiting (per rank where the engine labels it), ttft_seconds, kv_cache_usage_ratio.

Look-alikes
    capacity_shortfall (all queue), slow_replica (requests pile up because it is slow: its share of new work falls),
    kv_eviction_storm (the hot one's cache is full as a consequence), a replica that is drained or has just started.

Source
    incidents.md A3, A4: vllm#36748, vllm#48808, vllm#49204, gie#2950, router#298.
"""

from __future__ import annotations

import numpy as np

from core.incidents import Finding, RuledOut, Scope
from detectors.case import Case, Row, mean
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.measures import QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.placement import SPAN_S, Lean, Placement, leaning_ranks, learn_shares, placement
from detectors.stats import zeroed
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, percent

_FLOORS = {"running": 0.1, "waiting": 0.1, "arrivals": 0.1, "kv": 0.1, "hit": 0.01, "queue": 0.1}


LASTING_S = 600.0


class ReplicaSkew:
    """See the module's docstring."""

    kind = "replica_skew"
    needs = needs("running", "waiting", "kv", "hits", "queries")
    hists = (TTFT, f"{QUEUE}:mean")

    def fit(self, history: Window, as_of: float) -> Json:
        """Each replica's usual share of its pool, the normal of load, and the past of late requests."""
        return {
            **learn(history, as_of, _FLOORS, block_s=SPAN_S),
            "shares": learn_shares(history),
            "tail": learn_tail(history, as_of),
        }

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool with hot replicas; else one for its replicas with hot ranks."""
        where = placement(window, baseline["shares"])
        m = now(window, max(2, int(SPAN_S // window.step)), *_FLOORS)
        findings, since = [], {}
        for pool, idx in window.pools.items():
            hit = idx[where.hot[idx]]
            if len(hit):
                since[pool] = state.get("since", {}).get(pool, window.end)
            leans = {int(u): lean for u in idx if (lean := leaning_ranks(window, int(u))) is not None}
            if len(hit):
                case = Case(window, pool, hit, idx, Normal.of(baseline, window), m)
                # Sessions come in lumps: what neither hurts nor queues must last before it is the router's doing.
                if self._urgent(case, baseline) or window.end - since[pool] >= LASTING_S:
                    findings.append(self._replicas(case, baseline, where))
            elif leans:
                case = Case(window, pool, np.asarray(sorted(leans)), idx, Normal.of(baseline, window), m)
                findings.append(self._ranks(case, baseline, leans))
        return Verdict(findings, {"since": since})

    def _urgent(self, case: Case, baseline: Json) -> bool:
        """Whether requests are late, or queue on the hot replica."""
        return bool(case.hurts(baseline["tail"]) or case.now["waiting"] >= 3 + 4 * case.before["waiting"])

    def _replicas(self, case: Case, baseline: Json, where: Placement) -> Finding:
        who, c = names(case.replicas), case.before
        load, others = mean(where.load[case.units]), mean(where.load[case.peers])
        share, usual = (
            float(np.nansum(where.share[case.units])),
            float(np.nansum(where.usual_share[case.units])),
        )
        holds = "hold" if len(case.units) > 1 else "holds"
        return case.finding(
            self.kind,
            title=f"Load skew on {case.pool}: {who} {holds} {number(load)} requests, the others {number(others)} each",
            cause=f"{who} gets {percent(share)} of the pool's new requests (usually {percent(usual)}) while "
            f"{number(others)} requests are on each of the others: the router places them unevenly.",
            links=_links(c["running"], c["waiting"]),
            strength=float(np.log2(max(load / max(others, 0.25), 1.0))),
            confidence=0.9,
            severity="page" if self._urgent(case, baseline) else "ticket",
            runner_up="slow_replica",
            evidence=(
                Row(
                    "requests_running",
                    unit="running + waiting",
                    now=load,
                    before=mean(where.usual_load[case.units]),
                    scope=who,
                ),
                Row(
                    "requests_running",
                    unit="running + waiting",
                    now=others,
                    before=mean(where.usual_load[case.peers]),
                    scope="peers",
                ),
                Row(
                    "ttft_seconds",
                    unit="share of the pool's new requests",
                    now=share,
                    before=usual,
                    scope=who,
                ),
                Row("requests_waiting", "waiting", "requests", scope=who),
                Row("queue_time_seconds", "queue", "s (mean)", scope=who),
                Row("kv_cache_usage_ratio", "kv", "0..1", scope=who),
                Row("prefix_cache_hit_tokens_total", "hit", "share", scope=who),
            ),
            ruled_out=(
                RuledOut(
                    "capacity_shortfall",
                    "the others have room",
                    f"{number(others)} requests each, usually {number(mean(where.usual_load[case.peers]))}",
                ),
                RuledOut(
                    "slow_replica",
                    "a slow replica gets no larger share of new requests",
                    f"{percent(usual)} → {percent(share)}",
                ),
                RuledOut(
                    "kv_eviction_storm", "peers keep room in KV", f"peers {percent(case.peer('kv'))} used"
                ),
                RuledOut("warm_up", "restart in the pool within ten minutes", "none"),
            ),
            now=(
                f"Turn session or prefix affinity down in the router, or move part of the sessions off {who}",
                "Check the router's view of load: stale metrics or health checks make it send everything one way",
            ),
            tomorrow=(
                "Route by least load with a bound on affinity (llm-d, gateway-api-inference-extension: queue and KV scorers)",
                "Alert on the largest replica's share of running requests",
            ),
            detail={"which": "replicas"},
        )

    def _ranks(self, case: Case, baseline: Json, leans: dict[int, Lean]) -> Finding:
        worst = max(leans, key=lambda u: max(leans[u].load))
        lean = leans[worst]
        name = case.window.units[worst].replica
        hot = names(lean.hot)
        loads = ", ".join(f"{r}: {number(x)}" for r, x in list(zip(lean.ranks, lean.load, strict=True))[:8])
        top = [x for r, x in zip(lean.ranks, lean.load, strict=True) if r in lean.hot]
        rest = [x for r, x in zip(lean.ranks, lean.load, strict=True) if r not in lean.hot]
        ranks = tuple(f"{case.window.units[u].replica}/{r}" for u, x in sorted(leans.items()) for r in x.hot)
        other = "ranks" if len(lean.hot) > 1 else "rank"
        return case.finding(
            self.kind,
            title=f"Load skew inside {name}: {other} {hot} of {len(lean.ranks)} has {number(max(top))} requests, "
            f"the others {number(sum(rest) / max(len(rest), 1))} each",
            cause=f"Requests per rank of {name}: {loads}. One rank works and others idle, so the balancing between ranks is "
            "what is wrong, not capacity.",
            links=_links(case.before["running"], case.before["waiting"]),
            onset=case.window.end - lean.seconds,
            strength=float(np.log2(max(max(top) / max(sum(rest) / max(len(rest), 1), 0.25), 1.0))),
            confidence=0.9,
            severity="page" if case.hurts(baseline["tail"]) or case.now["waiting"] >= 3.0 else "ticket",
            runner_up="capacity_shortfall",
            ranks=ranks,
            evidence=(
                *(
                    Row(
                        "requests_running",
                        unit="running + waiting",
                        now=x,
                        before=sum(lean.load) / len(lean.load),
                        scope=f"{name} rank {r}",
                        note="before: the mean of its ranks",
                    )
                    for r, x in sorted(zip(lean.ranks, lean.load, strict=True), key=lambda p: -p[1])[:4]
                ),
                Row("requests_waiting", "waiting", "requests per replica"),
                Row("kv_cache_usage_ratio", "kv", "0..1, fullest rank"),
            ),
            ruled_out=(
                RuledOut(
                    "capacity_shortfall",
                    "requests on the emptiest rank",
                    f"{number(min(lean.load))} beside {number(max(lean.load))}",
                ),
                RuledOut("slow_replica", "the work of one rank, not its speed, is larger", f"loads {loads}"),
                RuledOut(
                    "chance",
                    "two minutes and the last one both lean",
                    f"so for {lean.seconds:.0f} s",
                ),
            ),
            now=(
                f"Restart the balancing between ranks of {name} (vLLM: the DP coordinator; its load statistics have stopped)",
                "Send requests to the ranks directly (external DP load balancing) until it is mended",
            ),
            tomorrow=(
                "Alert on the largest rank's share of running requests, per replica",
                "vLLM: --data-parallel-external-lb, SGLang: --load-balance-method",
            ),
            detail={"which": "ranks"},
            scope=Scope(case.classes, (case.pool,), case.replicas, ranks),
        )


def _links(running: float, waiting: float) -> tuple[Link, ...]:
    return (
        Link("requests gather on it", "running", 2.0 * max(zeroed(running), 1.0), show=number),
        Link("requests queue", "waiting", 2 + 2 * zeroed(waiting), show=number),
    )
