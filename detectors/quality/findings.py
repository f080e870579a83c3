"""What is written about degraded generations: evidence, look-alikes, first actions."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.contract import Json
from detectors.quality.carriers import ChangeStep
from detectors.quality.rates import exact
from detectors.quality.verdict import LoadVerdict
from detectors.samples import Samples
from detectors.stats import poisson_tail, zeroed
from detectors.window import Window
from detectors.wording import names, percent, rounded

I = NDArray[np.intp]  # noqa: E741
SHARE = "share of sampled answers"


@dataclass(frozen=True)
class Degraded:
    """What the detector knows about one pool at a tick: ``rows`` since the onset, ``bad`` among them, who carries it."""

    window: Window
    pool: str
    rows: I
    bad: I
    mine: I
    carriers: tuple[str, ...]
    table: dict[str, tuple[int, int]]
    alarm: Json
    before: Json
    load: LoadVerdict
    step: ChangeStep | None

    @property
    def s(self) -> Samples:
        """The samples."""
        return self.window.samples

    @property
    def p0(self) -> float:
        """Upper bound of the normal rate."""
        return float(self.alarm["p0"])

    @property
    def everyone(self) -> bool:
        """Whether all replicas of the pool carry it."""
        return len(self.carriers) == len(self.table)

    @property
    def counts(self) -> tuple[int, int]:
        """(bad, outputs) of the carriers since the onset."""
        return int(self.s.bad[self.mine].sum()), len(self.mine)

    @property
    def old(self) -> float | None:
        """The learnt rate, None without a past."""
        return self.before["bad"] / self.before["n"] if self.before["n"] else None


def words_of(d: Degraded) -> str:
    """The verdict in a few words: what carries it."""
    if not d.everyone:
        return "one replica" if len(d.carriers) == 1 else "some replicas"
    if d.load.verdict is True:
        return "load-correlated"
    if d.step is not None:
        return f"since {d.step.kind}"
    return "independent of load" if d.load.verdict is False else "cannot tell yet"


def finding_of(d: Degraded, kind: str) -> Finding:
    """The finding: scope, numbers, verdict on load, evidence, actions."""
    s, pool = d.s, d.pool
    k, n = d.counts
    rate, old = k / max(n, 1), d.old
    witness, rules = witness_of(s, d.bad, d.before.get("accept")), rules_of(s, d.bad)
    onset = float(max(d.alarm["onset"], s.ts[d.bad[0]] - 60.0))
    where = f"{names(d.carriers)} ({pool})" if not d.everyone else pool
    if not d.everyone:
        spread = f"{names(d.carriers)} carries it, {len(d.table) - len(d.carriers)} others do not"
    else:
        spread = "all replicas of the pool carry it" if len(d.table) > 1 else "the pool has one replica"
    known = s.since(d.window.end - 900.0)
    recent = d.bad[d.bad >= known]
    normal = per_10k(old if old is not None else d.p0)
    return Finding(
        kind=kind,
        scope=Scope(
            tuple(sorted({s.names[c] for c in s.workload_class[d.bad] if s.names[c]})), (pool,), d.carriers
        ),
        at=float(s.ts[recent[-1]]) if len(recent) else float(d.alarm["at"]),
        onset=onset,
        strength=log(max(rate / d.p0, 1.0)) + log(k + 1.0),
        confidence=min(0.97, 0.8 + 0.02 * k),
        severity="page",
        runner_up="spec_decode_collapse" if witness else "",
        title=f"Degraded generations on {where}: {per_10k(rate)} of 10,000 sampled answers "
        f"are broken, normal {normal}",
        cause=f"{spread}; {d.load.sentence()}. Kinds of damage: {rules}.",
        load_correlated=d.load.verdict,
        evidence=tuple(_evidence(d, witness, onset)),
        ruled_out=_ruled_out(d),
        detail={
            "chain": _chain(d, onset),
            "actions": actions_for(d.everyone, d.carriers, d.load.verdict),
            "harm": {"answers_broken": k, "answers_sampled": n},
            "samples": [s.ids[i] for i in d.bad[-20:]],
            "load": d.load.as_json(),
            "rules": rules,
            "verdict": words_of(d),
        },
    )


def _chain(d: Degraded, onset: float) -> list[dict[str, object]]:
    k, n = d.counts
    links: list[dict[str, object]] = []
    if d.step is not None:
        links.append({"at": d.step.at, "what": d.step.kind, "value": d.step.what or "no text"})
    first = ", ".join(sorted({d.s.names[x] for x in d.s.replica[d.bad[:3]]}))
    links.append({"at": onset, "what": "first broken answers", "value": first})
    links.append(
        {"at": float(d.alarm["at"]), "what": "the rate is beyond chance", "value": f"{k} of {n} since"}
    )
    return links


def _evidence(d: Degraded, witness: tuple[float, str] | None, onset: float) -> list[Evidence]:
    old, p0 = rounded(d.old), rounded(d.p0)

    def line(scope: str, k: int, n: int, note: str) -> Evidence:
        return Evidence("degraded outputs", scope, old, rounded(k / max(n, 1)), p0, onset, SHARE, note)

    k, n = d.counts
    low, high = exact(k, n).per_10k()[1:]
    note = f"{k} of {n} (first bad turn of a session), 95 % interval {low:.0f}–{high:.0f} per 10,000"
    out = [line(names(d.carriers), k, n, note)]
    out += [line(r, kr, nr, f"{kr} of {nr}") for r, (kr, nr) in sorted(d.table.items())]
    if witness is not None:
        usual = d.before.get("accept")
        out.append(
            Evidence(
                "spec_accept_length",
                "bad answers",
                usual,
                rounded(witness[0]),
                usual,
                onset,
                "tokens per step",
                witness[1],
            )
        )
    if d.load.ratio is not None:
        b, t, (below, above) = d.load.bottom, d.load.top, d.load.limits
        out.append(
            Evidence(
                "degraded outputs by load",
                names(d.carriers),
                float(f"{b[0] / max(b[1], 1):.4g}"),
                float(f"{t[0] / max(t[1], 1):.4g}"),
                None,
                onset,
                SHARE,
                f"bottom quarter of load (≤ {below:.2f} of the mean): {b[0]} of {b[1]}; "
                f"top quarter (> {above:.2f}): {t[0]} of {t[1]}",
            )
        )
    return out


def _ruled_out(d: Degraded) -> tuple[RuledOut, ...]:
    s, rows, (k, n) = d.s, d.rows, d.counts
    ok = rows[~s.bad[rows]]
    base, a_ok = d.before.get("accept"), s.accept[ok]
    a_ok = a_ok[~np.isnan(a_ok)]
    mix = {
        s.names[c]: int(s.bad[rows[s.workload_class[rows] == c]].sum())
        for c in np.unique(s.workload_class[rows])
    }
    out = [
        RuledOut(
            "base rate",
            f"Poisson tail against the learnt rate ({d.before['bad']} of {d.before['n']} before)",
            f"p = {float(poisson_tail(k, n * d.p0)):.1g} for {k} of {n}",
        ),
        RuledOut(
            "one bad session",
            "only the first bad turn of a session counts",
            f"{len(np.unique(s.session[d.bad]))} sessions",
        ),
        RuledOut(
            "traffic_shift",
            "bad answers by class: a shift of mix raises none within a class",
            ", ".join(f"{c} {v}" for c, v in mix.items()),
        ),
    ]
    if base and len(a_ok) >= 50:
        out.append(
            RuledOut(
                "spec_decode_collapse",
                "acceptance of the clean answers is unchanged",
                f"median {np.median(a_ok):.2f}, before {base:.2f}",
                abs(float(np.median(a_ok)) / base - 1) < 0.1,
            )
        )
    out.append(RuledOut("load", d.load.test(), d.load.result(), d.load.verdict is False))
    return tuple(out)


def usable(s: Samples, hi: int, w: Window) -> NDArray[np.bool_]:
    """The first ``hi`` samples that may teach a baseline: at risk, and not of a replica in a span that is not normal."""
    return ~s.aside[:hi] & not_excluded(s, hi, w)


def not_excluded(s: Samples, hi: int, w: Window) -> NDArray[np.bool_]:
    """The first ``hi`` samples that do not come from a replica in a span that is not normal."""
    keep = np.ones(hi, bool)
    for u, a, b in w.excluded:
        if u < len(w.units):
            unit = w.units[u]
            lo, up = s.since(a), min(s.upto(b), hi)
            if lo < up:
                keep[lo:up] &= ~(
                    (s.pool[lo:up] == s.code(unit.pool)) & (s.replica[lo:up] == s.code(unit.replica))
                )
    return keep


def per_10k(x: float | None) -> str:
    """A share as 'per ten thousand' without the word."""
    return "unknown" if x is None else f"{x * 1e4:.0f}" if x >= 1e-3 else f"{x * 1e4:.1f}"


def witness_of(s: Samples, bad: NDArray[np.intp], usual: float | None) -> tuple[float, str] | None:
    """Median acceptance length of bad answers long enough to tell, and how many stand out for their length."""
    if not usual:
        return None
    a, tokens = s.accept[bad], zeroed(s.output_tokens[bad])
    long = (tokens >= 24) & ~np.isnan(a)
    if not long.any():
        return None
    a, tokens = a[long], tokens[long]
    far = (np.abs(a - usual) > 6 * 1.25 / np.sqrt(tokens)) & ((a < 0.6 * usual) | (a > 1.35 * usual))
    return float(
        np.median(a)
    ), f"{int(far.sum())} of {len(a)} bad answers are far from the usual acceptance for their length"


def rules_of(s: Samples, bad: NDArray[np.intp]) -> str:
    seen: dict[str, int] = {}
    for i in bad:
        for r in s.rules[i]:
            seen[r] = seen.get(r, 0) + 1
    top = sorted(seen.items(), key=lambda kv: (-kv[1], kv[0]))[:4]
    return ", ".join(f"{r} {percent(n / len(bad))}" for r, n in top) or "not recorded"


def actions_for(everyone: bool, carriers: tuple[str, ...], verdict: bool | None) -> dict[str, list[str]]:
    if not everyone:
        return {
            "now": [
                f"Take {names(carriers)} out of rotation (drain, do not kill: keep it for a look)",
                "Compare its release, flags and GPU with its peers",
            ],
            "tomorrow": [
                "Run a fixed canary set per replica after each start, before it takes traffic",
                "vLLM: VLLM_COMPUTE_NANS_IN_LOGITS=1 counts corrupted requests per replica",
            ],
        }
    now = ["Retry broken answers at the gateway (abort on very low or very high acceptance after 128 tokens)"]
    if verdict:
        now.insert(
            0,
            "Lower concurrency: --max-num-seqs (vLLM) / --max-running-requests (SGLang); spread over more replicas",
        )
    return {
        "now": now,
        "tomorrow": [
            "Replay production traffic with real timing at this load; single replays do not show it",
            "Switch off one at a time: speculative decoding (--speculative-config / --speculative-algorithm), "
            "KV offload (--enable-hierarchical-cache), PD transfer; watch the rate",
            "Sample more outputs" if verdict is None else "Keep the sampled outputs of this span",
        ],
    }
