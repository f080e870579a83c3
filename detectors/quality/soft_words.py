"""What is written about a soft rule whose rate has risen: numbers of its own stratum, never a count of degraded answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.contract import Json
from detectors.quality.carriers import ChangeStep
from detectors.quality.findings import rules_of
from detectors.quality.rates import exact
from detectors.quality.soft import Stratum
from detectors.quality.verdict import LoadVerdict
from detectors.stats import poisson_tail
from detectors.window import Window
from detectors.wording import names, percent, rounded

I = NDArray[np.intp]  # noqa: E741


@dataclass(frozen=True, slots=True)
class Words:
    """How a group of rules is spoken of: a title, what the rate is one of, what to do now and tomorrow."""

    title: str
    of: str
    now: tuple[str, ...]
    tomorrow: tuple[str, ...]


WORDS = {
    "calls": Words(
        "Malformed tool calls",
        "calls",
        (
            "Retry calls that do not parse; let the agent see the parser's message instead of failing the task",
            "Look above the engine first: tool schema, prompt template, tool-call parser, sampling settings",
        ),
        (
            "Constrain calls by grammar (vLLM: --enable-auto-tool-choice with the model's parser; SGLang: --tool-call-parser)",
            "Replay the kept calls on the release before",
        ),
    ),
    "endings": Words(
        "Empty or broken-off answers",
        "answers",
        (
            "Retry empty answers at the gateway",
            "Look at stop words, the chat template and the reasoning parser: what eats the text, the model or a filter?",
        ),
        ("Compare finish reasons by release and replica",),
    ),
    "limit": Words(
        "Answers cut by the length limit",
        "answers",
        (
            "Check whether max_tokens, a default or the context length was changed",
            "Read some of the answers: runaway reasoning and loops end here as well",
        ),
        ("Give the route a limit of its own",),
    ),
}


@dataclass(frozen=True)
class SoftRise:
    """What is known of one stratum at a tick. ``window`` is the one seen through the stratum (``bad`` = faulty)."""

    window: Window
    where: Stratum
    rows: I
    bad: I
    carriers: tuple[str, ...]
    table: dict[str, tuple[int, int]]
    mine: I
    alarm: Json
    learnt: tuple[int, int]
    load: LoadVerdict
    step: ChangeStep | None


def finding_of(r: SoftRise, kind: str) -> Finding:
    """The finding, of ticket severity: nobody is woken by a rule that is also right about ordinary answers."""
    s, words = r.window.samples, WORDS[r.where.group]
    k, n = int(s.bad[r.mine].sum()), len(r.mine)
    rate, usual = k / max(n, 1), r.learnt[0] / max(r.learnt[1], 1)
    everyone = len(r.carriers) == len(r.table)
    normal = percent(usual) if r.learnt[0] else f"none of {r.learnt[1]:,}"
    place = r.where.pool if everyone else f"{names(r.carriers)} ({r.where.pool})"
    onset = float(max(r.alarm["onset"], s.ts[r.bad[0]] - 60.0))
    interval = exact(k, n)
    if not everyone:
        spread = f"{names(r.carriers)} carries it, {len(r.table) - len(r.carriers)} others do not"
    else:
        spread = "all replicas of the pool alike: a change above the engine (prompt, schema, parser, sampling) or a release"
    recent = r.bad[r.bad >= s.since(r.window.end - 900.0)]
    between = f"{percent(interval.low)} to {percent(interval.high)}"
    note = f"{k} of {n} {words.of} (first faulty turn of a session), 95 % interval {between}"
    p0 = float(r.alarm["p0"])
    links: list[dict[str, object]] = []
    if r.step is not None:
        links.append({"at": r.step.at, "what": r.step.kind, "value": r.step.what or "no text"})
    links += [
        {"at": onset, "what": f"first {words.title.lower()}", "value": names(r.carriers)},
        {"at": float(r.alarm["at"]), "what": "the rate is beyond chance", "value": f"{k} of {n} since"},
    ]
    return Finding(
        kind=kind,
        scope=Scope((r.where.workload_class,) if r.where.workload_class else (), (r.where.pool,), r.carriers),
        at=float(s.ts[recent[-1]]) if len(recent) else float(r.alarm["at"]),
        onset=onset,
        strength=log(max(rate / p0, 1.0)) + log(k + 1.0),
        confidence=min(0.9, 0.6 + 0.02 * k),
        severity="ticket",
        runner_up="traffic_shift",
        title=f"{words.title} on {place}: {percent(rate)} of {words.of}, normal {normal}",
        cause=f"{spread}; {r.load.sentence()}. Rules: {rules_of(s, r.bad)}. A rise of a rate against its own past: "
        "single answers may be right.",
        load_correlated=r.load.verdict,
        evidence=(
            Evidence(
                f"rate of {words.title.lower()}", names(r.carriers), rounded(usual), rounded(rate), rounded(p0), onset,
                f"share of {words.of}", note,
            ),
            *(
                Evidence(
                    f"rate of {words.title.lower()}", name, rounded(usual), rounded(kr / max(nr, 1)), rounded(p0), onset,
                    f"share of {words.of}", f"{kr} of {nr}",
                )
                for name, (kr, nr) in sorted(r.table.items())
            ),
        ),
        ruled_out=(
            RuledOut(
                "base rate",
                f"Poisson tail against the stratum's own learnt rate ({r.learnt[0]} of {r.learnt[1]} before)",
                f"p = {float(poisson_tail(k, n * p0)):.1g} for {k} of {n}",
            ),
            RuledOut(
                "one bad session",
                "only the first faulty turn of a session counts",
                f"{len(np.unique(s.session[r.bad]))} sessions",
            ),
            RuledOut("load", r.load.test(), r.load.result(), r.load.verdict is False),
        ),
        detail={
            "chain": links,
            "actions": {"now": list(words.now), "tomorrow": list(words.tomorrow)},
            "harm": {"answers_sampled": n},
            "samples": [s.ids[i] for i in r.bad[-20:]],
            "load": r.load.as_json(),
            "rules": rules_of(s, r.bad),
            "verdict": "soft rules",
            "soft": {"group": r.where.group, "faulty": k, "of": n},
        },
    )  # fmt: skip
