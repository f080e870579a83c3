"""The verdict in words: what carries a raised rate of degraded outputs, and what would settle it."""

from __future__ import annotations

from dataclasses import dataclass

from detectors.quality.decision import EPISODES, HOURS, RATIO, UNKNOWN_LOAD
from detectors.quality.evalues import ALARM
from detectors.quality.rates import RateInterval, zero_bound
from detectors.quality.strata import Stratum, Table
from detectors.quality.verdict import LoadVerdict


@dataclass(frozen=True)
class Verdict:
    """``code`` is stable (``load``, ``replica``, ``release``, ``cache``, ``uptime``, ``baseline``, ``no_load``, ``open``,
    ``none``); ``title`` a sentence, ``because`` the numbers behind it, ``next`` what to do or what is missing."""

    code: str
    title: str
    because: tuple[str, ...]
    next: str


def per_10k(r: RateInterval) -> str:
    """``13 (9.2–18) per 10,000``."""
    if not r.n:
        return "unknown"
    value, low, high = r.per_10k()
    return f"{_short(value)} ({_short(low)}–{_short(high)}) per 10,000"


def _short(x: float) -> str:
    return f"{x:,.0f}" if x >= 9.95 else f"{x:.1f}"


def verdict_of(
    rate: RateInterval,
    baseline: RateInterval,
    evidence: float,
    strata: Table,
    load: LoadVerdict,
    *,
    gauge: bool = True,
    focus: str = "",
) -> Verdict:
    """Words for an analysis; see :class:`Verdict`."""
    if not rate.n:
        return Verdict(
            "none", "No output was sampled here", (), "Import outputs, or send them to /api/v1/outputs."
        )
    counted = f"{rate.k:,} of {rate.n:,} sampled outputs are degraded: {per_10k(rate)}, exact 95 % interval."
    usual = (
        f"The week before: {baseline.k:,} of {baseline.n:,}, {per_10k(baseline)}."
        if baseline.n >= 500
        else "No week before to compare with: judged against 30 per 10,000, ten times the usual rate of models."
    )
    if not rate.k:
        bound = f"None of {rate.n:,} is degraded: the rate is below {_short(zero_bound(rate.n) * 1e4)} per 10,000 (95 %)."
        return Verdict("baseline", "No degraded output was seen", (bound, usual), "")
    load_line = _load_line(load)
    raised = evidence >= ALARM or strata.evidence >= ALARM
    times = f"Evidence against the usual rate: {_evidence(evidence)}."
    if evidence < ALARM <= strata.evidence:
        times += f" That it is uneven where it should not be: {_evidence(strata.evidence)}."
    here = (f"Pool {focus} carries it; what follows is about that pool.",) if focus else ()
    base = (counted, usual, times, *here)
    carriers = {s.dimension: s for s in reversed(strata.carriers())}
    if not raised and load.verdict is not True:
        return Verdict(
            "baseline",
            "The rate is this deployment's usual one: a trait of the model, not an incident",
            (*base, load_line),
            "A single bad answer is normal; only a rate that steps up asks for a cause.",
        )
    for dimension, code, sentence, do in CARRIED:
        s = carriers.get(dimension)
        if s is None or (dimension == "last change" and (s.level != "after it" or load.verdict is True)):
            continue
        return Verdict(code, sentence.format(level=s.level), (*base, _stratum_line(s), load_line), do)
    source = (
        ()
        if gauge
        else (
            "Not every engine exports its running requests here: then load is that of sampled requests in flight.",
        )
    )
    if load.verdict is True:
        return Verdict(
            "load",
            f"It grows with load: {load.interval()} from the bottom to the top quarter of load",
            (*base, load_line, *_confirmed(load), *source),
            "Lower concurrency per replica and replay production timing at this load; single replays do not show it.",
        )
    if load.verdict is False:
        other = strata.carriers()
        more = tuple(_stratum_line(s) for s in other[:1])
        return Verdict(
            "no_load",
            "It does not depend on load",
            (*base, load_line, *more, *source),
            "Serving looks unchanged: look above the engine too (prompt template, tool schema, sampling settings).",
        )
    if load.more:
        more_needed = f"About {load.more:,} more sampled outputs are needed."
    elif load.why == UNKNOWN_LOAD:
        more_needed = (
            "Scrape the engines of these replicas: the load at admission is their requests_running "
            "(vllm:num_requests_running, sglang:num_running_reqs)."
        )
    elif load.low is not None and load.low > RATIO and load.episodes < EPISODES and load.hours < HOURS:
        more_needed = (
            f"It rises with load so far. {EPISODES - load.episodes} more separate spells of high load would settle it "
            f"(or {HOURS - load.hours} more hours): look again after the next busy spell."
        )
    else:
        more_needed = capital(load.why) + "."
    return Verdict(
        "open",
        "Whether load is to blame cannot be told yet",
        (*base, load_line, *source),
        more_needed,
    )


CARRIED = (
    ("replica", "replica", "One replica carries it: {level}", "Take it out of rotation; keep it for a look."),
    ("release", "release", "A release carries it: {level}", "Roll it back on one replica and compare."),
    (
        "cache path",
        "cache",
        "The cache path carries it: {level}",
        "Switch that cache tier off on one replica and compare.",
    ),
    (
        "time since start",
        "uptime",
        "It grows with time since the process began",
        "Restart one replica: if it is cured and the others are not, it accumulates.",
    ),
    (
        "last change",
        "release",
        "It began with the last restart or release of each replica",
        "Roll that change back on one replica and compare.",
    ),
)


def capital(text: str) -> str:
    """First letter large."""
    return text[:1].upper() + text[1:]


def _evidence(e: float) -> str:
    if e < 1:
        return "none (e-value below 1)"
    size = f"{e:,.0f}" if e < 1e6 else "over a million"
    return f"e-value {size} (100 is an alarm, however often one looks)"


def _stratum_line(s: Stratum) -> str:
    return (
        f"{capital(s.dimension)} {s.level}: {s.rate.k:,} of {s.rate.n:,}, {per_10k(s.rate)}; all others "
        f"{_short(s.rest * 1e4)} per 10,000 at equal class and load (e-value {s.evidence:,.0f})."
        if s.evidence < 1e6
        else f"{capital(s.dimension)} {s.level}: {s.rate.k:,} of {s.rate.n:,}, {per_10k(s.rate)}; all others "
        f"{_short(s.rest * 1e4)} per 10,000 at equal class and load (e-value over a million)."
    )


def _load_line(load: LoadVerdict) -> str:
    if load.ratio is None:
        return f"Load: {load.why}."
    b, t = load.bottom, load.top
    return (
        f"Top against bottom quarter of load: {load.interval()} with class, prompt length, model and release held fixed "
        f"({t[0]} of {t[1]:,} against {b[0]} of {b[1]:,}); {load.why}."
    )


def _confirmed(load: LoadVerdict) -> tuple[str, ...]:
    out = []
    if load.rotation is not None:
        out.append(
            f"Turning the load round within its {load.episodes} episodes does the same in {100 * load.rotation:.1f} % of tries."
        )
    if load.placebos:
        worst = min(load.placebos.values())
        out.append(f"Placebos ({', '.join(load.placebos)}) show nothing (smallest p {worst:.2f}).")
    if load.mechanism is not None:
        out.append(f"With cache path and preemption held fixed as well: ×{load.mechanism[0]:.1f}.")
    return tuple(out)
