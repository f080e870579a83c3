"""The verdict on degraded generations over many seeds: ``python -m bench.quality_seeds [SCENARIO ...] [--seeds 20] [--json]``.

The simulator's quality half alone: the pool of the fault, its finished answers and the running, waiting and preempted requests
of its replicas. No exposition is written, scraped or stored, so a history of 75 minutes takes seconds. Texts that the simulation
broke are written and go through the real rules; the others count as clean (no rule is wrong about a clean text of the simulator,
docs/text-rules.md). The fold, the detector, the load verdict and the state machine are the real ones.

A verdict is **right** where it names the replicas and the dependence on load that the truth has, **open** where it says that
load cannot be told yet (with the right replicas), **false** where it says something else, **silent** where nothing was said.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from core.frames import Frame, Layout, Target, column
from core.incidents import Incident
from core.records import Event, OutputRecord
from core.text import score_text
from core.text.calltext import call_text_rules
from detectors.contract import Context
from detectors.cube import Cube
from detectors.degraded_generations import DegradedGenerations
from detectors.fold import Fold
from detectors.registry import wanted
from detectors.samples import Samples
from fleet import scenarios
from fleet.model import Finish, ReplicaState
from fleet.outputs.writer import Writer
from fleet.simulation import Simulation

STEP, LAG, HOURS, SHARE = 15.0, 30.0, 1.25, 0.5
SCENARIOS = (
    "garble_load", "garble_replica", "garble_release", "garble_host", "garble_uptime", "garble_aborts", "garble_surge",
    "loops_are_load", "poisoned_sessions", "flood_replica", "tool_calls", "calm", "calm_mix", "calm_surge", "calm_deploy",
)  # fmt: skip
HOST = {"host": "cpu", "transfer": "remote"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was said of one seed. ``found`` is one of right, open, false, silent; for calm ones right means silence."""

    scenario: str
    seed: int
    found: str
    said: str


@dataclass
class Lived:
    """A simulated history as the detector takes it."""

    frames: list[Frame]
    targets: dict[int, Target]
    outputs: list[OutputRecord]
    events: list[Event]
    truth: dict[str, Any]
    start: float
    end: float


def live(name: str, seed: int, *, hours: float = HOURS, share: float = SHARE, most: int = 3) -> Lived:
    """Simulate a scenario with ``most`` replicas (those of the fault's pool first)."""
    spec = scenarios.build(name, seed, hours=hours, most=most)
    assert spec.end is not None
    sim, writer = Simulation(spec), Writer(seed)
    sim.run(spec.start)
    for r in sim.replicas:
        for e in r.engines:
            e.observations.drain()
    out = Lived([], {}, [], [], {}, spec.start, spec.end)
    ids: dict[str, int] = {}
    seen: dict[str, tuple[float, dict[int, float]]] = {}
    t = spec.start + STEP
    while t <= spec.end:
        sim.run(t)
        sim.drain_attempts()
        for r in sim.replicas:
            finishes = [f for e in r.engines for f in e.observations.drain().finishes]
            if r.role == "prefill":
                continue
            out.outputs += [_record(r, f, writer) for f in finishes if _sampled(f, seed, share)]
            before = seen.get(r.address)
            if before is not None and before[0] != r.process_start:
                out.events.append(Event(r.process_start, "restart", pool=r.pool, replica=r.name))
            if r.up and r.engines:
                tid = ids.setdefault(r.address, len(ids) + 1)
                out.targets[tid] = Target(r.address, pool=r.pool, replica=r.name, components=("vllm",))
                old = before[1].get(0, 0.0) if before is not None and before[0] == r.process_start else 0.0
                preempted = float(r.counters.get("preemptions", 0.0))
                out.frames.append(_frame(tid, t, r, max(0, round(preempted - old))))
                seen[r.address] = (r.process_start, {0: preempted})
        t += STEP
    out.truth = sim.truth()
    return out


def _sampled(f: Finish, seed: int, share: float) -> bool:
    return f.finish_reason in ("stop", "length") and Random(f"{seed}:sample:{f.id}").random() < share


def _record(r: ReplicaState, f: Finish, writer: Writer) -> OutputRecord:
    score = score_text(writer.text(f), finish_reason=f.finish_reason) if f.corrupt else None
    rules: dict[str, float] = {"truncated": 1.0} if f.finish_reason == "length" else {}
    features: dict[str, float] = {}
    if score is not None:
        rules, features = dict(score.rules), dict(score.features)
    elif f.workload == "coding-agent":
        # Whether a clean answer is a call decides what malformed calls are a share of.
        features = call_text_rules(writer.text(f))[1]
    return OutputRecord(
        f.id, f.t, f.t - f.e2e, f.workload, r.pool, r.name, r.model, r.release, session=f.session, turn=f.turn,
        prompt_tokens=f.prompt_tokens, output_tokens=f.output_tokens, cached_tokens=f.cached_tokens,
        accept_length=f.accept_length, finish_reason=f.finish_reason, cache_source=HOST.get(f.cache_source, ""),
        verdict="clean" if score is None else score.verdict, rules=rules, features=features,
    )  # fmt: skip


_COLUMNS = (
    column("requests_running"),
    column("requests_waiting"),
    column("preemptions_total", "counter"),
    column("request_success_total", "counter"),
)
_LAYOUT = Layout(_COLUMNS)


def _frame(tid: int, t: float, r: ReplicaState, preempted: int) -> Frame:
    gauges = np.asarray([sum(e.gauges[k] for e in r.engines) for k in ("running", "waiting")], float)
    counts = np.asarray([preempted, 1], np.int64)
    return Frame(tid, t - STEP, t - 1.0, _LAYOUT, gauges, counts, np.zeros(0), False)


def said_of(lived: Lived) -> list[Incident]:
    """What a live run would have said by the end, at ticket severity or above."""
    items = (DegradedGenerations(),)
    needs, hists = wanted(items)
    cube = Cube(needs, hists, start=lived.start)
    cube.extend(lived.frames, lived.targets, lived.end)
    samples, fold = Samples.of(lived.outputs), Fold(Context(), items)
    last: dict[str, Incident] = {}
    now = lived.start + STEP
    while now <= lived.end:
        for change in fold.tick(cube, samples, lived.events, now, now - LAG):
            last[change.incident.id] = change.incident
        now += STEP
    if fold.errors:
        raise RuntimeError(str(fold.errors))
    last.update({k: t.incident for k, t in fold.tracker.tracked.items()})
    return [i for i in last.values() if i.severity != "info"]


def judged(name: str, seed: int, *, hours: float = HOURS, share: float = SHARE) -> Outcome:
    """One seed against the truth."""
    lived = live(name, seed, hours=hours, share=share)
    found = said_of(lived)
    wanted_ones = [i for i in lived.truth["incidents"] if i["kind"] == "degraded_generations"]
    said = "; ".join(f"{i.title} [load {i.load_correlated}, {', '.join(i.replicas)}]" for i in found)
    if not wanted_ones:
        return Outcome(name, seed, "false" if found else "right", said)
    if not found:
        return Outcome(name, seed, "silent", "")
    truth = wanted_ones[0]
    if len(found) > 1 or set(found[0].replicas) != set(truth["replicas"]):
        whole = found[0].load_correlated is None and found[0].pools == (truth["pool"],)
        return Outcome(name, seed, "open" if whole and len(found) == 1 else "false", said)
    if found[0].load_correlated is None:
        return Outcome(name, seed, "open", said)
    right = found[0].load_correlated == truth["load_correlated"]
    return Outcome(name, seed, "right" if right else "false", said)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", help=f"default: {', '.join(SCENARIOS)}")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--hours", type=float, default=HOURS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for name in args.scenarios or SCENARIOS:
        outcomes = [
            judged(name, seed, hours=args.hours) for seed in range(args.first, args.first + args.seeds)
        ]
        n = Counter(o.found for o in outcomes)
        rows.append(
            {"scenario": name, "seeds": args.seeds, **{k: n[k] for k in ("right", "open", "false", "silent")}}
        )
        if not args.json:
            print(
                f"{name:<20} right {n['right']:>3}  open {n['open']:>3}  false {n['false']:>3}  silent {n['silent']:>3}",
                flush=True,
            )
            for o in outcomes:
                if o.found in ("false", "silent"):
                    print(f"    seed {o.seed}: {o.found} {o.said}", flush=True)
    if args.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
