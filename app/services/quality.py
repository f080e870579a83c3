"""Harm in what was answered: degraded generations in the sampled outputs of an incident's pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.services.latency import grid_size, step_ends
from app.services.measures import Measure
from app.services.rates import Rate, rate
from app.services.replicas import Curve
from app.services.wording import significant
from core.incidents import Incident
from core.records import OutputRecord

DEGRADED = Measure(
    "degraded_rate",
    "Degraded answers per 10,000 sampled, ten minutes",
    "per 10,000",
    "ratio",
    (),
    full_scale=100.0,
)
BIN = 600.0
MIN_SAMPLED = 20


@dataclass(frozen=True, slots=True)
class QualityHarm:
    """Hard verdicts among sampled answers since the onset (``now``) and before it; ``damage``: rules that fired, most first."""

    now: Rate
    before: Rate
    damage: tuple[tuple[str, int], ...]

    def clause(self) -> str:
        """``128 of 10,000 sampled answers are broken, normal 4.6``."""
        if self.now.value is None:
            return "no answer sampled since"
        head = f"{significant(self.now.value * 1e4)} of 10,000 sampled answers are broken"
        return head if self.before.value is None else f"{head}, before {significant(self.before.value * 1e4)}"


def quality_harm(incident: Incident, outputs: Sequence[OutputRecord], onset: float) -> QualityHarm:
    """Before and since the onset, where the incident is."""
    mine = [o for o in outputs if _concerned(o, incident)]
    since = [o for o in mine if o.ts >= onset]
    before = [o for o in mine if o.ts < onset]
    hard = [o for o in since if o.verdict == "hard"]
    damage = Counter(rule for o in hard for rule in o.rules)
    return QualityHarm(
        rate(len(hard), len(since), source="sampled outputs"),
        rate(sum(o.verdict == "hard" for o in before), len(before), source="sampled outputs"),
        tuple(damage.most_common(5)),
    )


def _concerned(o: OutputRecord, incident: Incident) -> bool:
    return (
        (not incident.pools or o.pool in incident.pools)
        and (not incident.replicas or o.replica in incident.replicas)
        and (not incident.classes or o.workload_class in incident.classes)
    )


def degraded_curves(outputs: Sequence[OutputRecord], start: float, end: float) -> list[Curve]:
    """Degraded answers per 10,000 in bins of ten minutes for every replica; a gap where too few were sampled."""
    size = grid_size(start, end, BIN)
    t = step_ends(start, BIN, size)
    hits: dict[tuple[str, str], np.ndarray] = {}
    n: dict[tuple[str, str], np.ndarray] = {}
    for o in outputs:
        at = int((o.ts - start) // BIN)
        if not o.replica or not 0 <= at < size:
            continue
        place = (o.pool, o.replica)
        n.setdefault(place, np.zeros(size))[at] += 1
        hits.setdefault(place, np.zeros(size))[at] += o.verdict == "hard"
    out = []
    for place in sorted(n):
        enough = n[place] >= MIN_SAMPLED
        value = np.where(enough, hits[place] / np.maximum(n[place], 1) * 1e4, np.nan)
        out.append(Curve(place[1], place[0], np.minimum(t, end), value))
    return out
