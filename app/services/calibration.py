"""Calibration on site: outputs drawn for two people, labelled without seeing what the rules said, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from app.services import texts
from app.services.people import Principal, require
from core.config_auth import AuthConfig
from core.errors import ConfigError
from core.incidents import iso
from detectors.quality.agreement import (
    LABELS,
    Kappa,
    Labelled,
    kappa,
    precision,
    recall,
    shares,
)
from detectors.quality.rates import RateInterval
from sql.ratings import Queued, Rating
from sql.store import Store

SIZES: Mapping[str, int] = {"hard": 40, "soft": 40, "clean": 120}


def open_batch(
    store: Store, batch: str, start: float, end: float, now: float, sizes: Mapping[str, int] = SIZES
) -> list[Queued]:
    """Draw a batch, or return the one of that name. ``ConfigError`` where no text is kept in the range."""
    found = store.draw_ratings(batch, start, end, sizes, now)
    if not found:
        raise ConfigError(
            "quality queue",
            f"no sampled output between {iso(start)} and {iso(end)} has its text",
            "set outputs.store_text: true and wait for outputs: people label what they can read",
        )
    return found


@dataclass(frozen=True, slots=True)
class Next:
    """The next output for a rater: its place among ``total``, and the text (None: erased or dropped meanwhile)."""

    output: str
    place: int
    total: int
    text: str | None


def next_for(
    store: Store,
    principal: Principal,
    auth: AuthConfig,
    batch: str,
    rater: str,
    *,
    origin: str = "",
    read: Callable[[str], str | None] | None = None,
) -> Next | None:
    """The first output of the batch that ``rater`` has not labelled; None where none is left. Neither the rules' verdict nor
    another's label comes along. Needs the permission to read texts; each look is in the audit log. ``read`` (of a page, which
    runs again and again) reads and logs instead."""
    queue = _queue(store, batch)
    done = {r.output for r in store.output_ratings(batch) if r.rater == rater}
    for item in queue:
        if item.output not in done:
            if read is not None:
                text = read(item.output)
            else:
                text = texts.read_text(store, principal, auth, item.output, origin=origin)
            return Next(item.output, item.place + 1, len(queue), text)
    return None


def rate(
    store: Store, principal: Principal, batch: str, output: str, rater: str, label: str, now: float
) -> None:
    """Store a label. Forbidden for a role below responder; ``ConfigError`` for an unknown label or output."""
    require(principal, "responder")
    if label not in LABELS:
        raise ConfigError("label", "no such label", f"one of {', '.join(LABELS)}", label)
    if not rater.strip():
        raise ConfigError("rater", "a label needs the name of who gives it", "name the rater")
    if output not in {q.output for q in _queue(store, batch)}:
        raise ConfigError("output", f"not in batch {batch}", "take one from the queue", output)
    store.rate_output(Rating(batch, output, rater.strip()[:100], label, now))


@dataclass(frozen=True)
class Agreement:
    """What the labels of a batch say. ``pairs``: kappa of each two raters; ``judges``: of a model judge with settled labels."""

    batch: str
    outputs: int
    by_rater: Mapping[str, int]
    settled: int
    disputed: tuple[str, ...]
    pairs: Mapping[tuple[str, str], Kappa | None]
    judges: Mapping[str, Kappa | None]
    precision: Mapping[str, RateInterval]
    shares: Mapping[str, RateInterval]
    sizes: Mapping[str, int]
    recall: tuple[float, float, float] | None


def agreement(store: Store, batch: str) -> Agreement:
    """Everything that follows from a batch's labels."""
    queue = _queue(store, batch)
    given: dict[str, dict[str, str]] = {}
    for r in store.output_ratings(batch):
        given.setdefault(r.output, {})[r.rater] = r.label
    labelled = {
        q.output: Labelled(q.stratum, tuple(json.loads(q.rules)), given.get(q.output, {})) for q in queue
    }
    raters = sorted({name for found in given.values() for name in found})
    pairs = {
        (a, b): kappa((found[a], found[b]) for found in given.values() if a in found and b in found)
        for a, b in combinations(raters, 2)
    }
    said: dict[str, list[tuple[str, str]]] = {}
    for j in store.judgements([q.output for q in queue]):
        settled = labelled[j.output].settled
        if settled is not None:
            said.setdefault(j.judge, []).append((settled, j.label))
    rows = list(labelled.values())
    sizes = {q.stratum: q.stratum_size for q in queue}
    return Agreement(
        batch,
        len(queue),
        {name: sum(name in found for found in given.values()) for name in raters},
        sum(o.settled is not None for o in rows),
        tuple(i for i, o in labelled.items() if len(o.labels) >= 2 and len(set(o.labels.values())) > 1),
        pairs,
        {judge: kappa(p) for judge, p in sorted(said.items())},
        precision(rows),
        shares(rows),
        sizes,
        recall(rows, sizes),
    )


def sentences(a: Agreement) -> list[str]:
    """The same for people, one fact a line."""
    out = [f"{a.batch}: {a.outputs} outputs, {a.settled} settled by two raters, {len(a.disputed)} disputed."]
    out += [f"{x} and {y}: {_kappa_words(k)}" for (x, y), k in a.pairs.items()]
    if not a.pairs:
        out.append("Agreement: not enough data, it needs two raters.")
    out += [f"Model judge {name} against settled labels: {_kappa_words(k)}" for name, k in a.judges.items()]
    for stratum, r in a.shares.items():
        out.append(
            f"Verdict {stratum}: {r.k} of {r.n} labelled degraded, {_share(r.value)} ({_share(r.low)} to {_share(r.high)}), "
            f"drawn from {a.sizes[stratum]:,}."
        )
    if a.recall is None or a.recall[0] != a.recall[0]:
        out.append("Recall of the hard rules: not enough data, each stratum needs settled labels.")
    else:
        value, low, high = (_share(x) for x in a.recall)
        out.append(f"Recall of the hard rules: {value} ({low} to {high}, 95 % at least).")
    return out


def _share(x: float) -> str:
    return f"{100 * x:.0f} %" if x >= 0.0995 or x == 0 else f"{100 * x:.2g} %"


def _kappa_words(k: Kappa | None) -> str:
    if k is None:
        return "not enough data, ten outputs labelled by both are the least."
    if k.value != k.value:
        return f"kappa is not defined, one label was given to everything; the same on {k.agreed} of {k.n}."
    return f"kappa {k.value:.2f} ({k.low:.2f} to {k.high:.2f}), the same on {k.agreed} of {k.n}."


def as_json(a: Agreement) -> dict[str, Any]:
    """For ``gustfront quality agreement --json``; what is not known is null."""

    def of_kappa(k: Kappa | None) -> dict[str, Any] | None:
        if k is None:
            return None
        numbers = {"kappa": k.value, "low": k.low, "high": k.high}
        return {**{n: None if v != v else v for n, v in numbers.items()}, "outputs": k.n, "same": k.agreed}

    def of_rate(r: RateInterval) -> dict[str, Any]:
        return {"share": r.value if r.n else None, "low": r.low, "high": r.high, "degraded": r.k, "of": r.n}

    return {
        "batch": a.batch,
        "outputs": a.outputs,
        "labelled": dict(a.by_rater),
        "settled": a.settled,
        "disputed": list(a.disputed),
        "agreement": [{"raters": list(pair), "of": of_kappa(k)} for pair, k in a.pairs.items()],
        "judges": {name: of_kappa(k) for name, k in a.judges.items()},
        "precision": {rule: of_rate(r) for rule, r in a.precision.items()},
        "strata": {s: {**of_rate(r), "drawn_from": a.sizes[s]} for s, r in a.shares.items()},
        "recall": None
        if a.recall is None or a.recall[0] != a.recall[0]
        else dict(zip(("value", "low", "high"), a.recall, strict=True)),
    }


def _queue(store: Store, batch: str) -> list[Queued]:
    found = store.rating_queue(batch)
    if not found:
        known = ", ".join(b for b, _, _ in store.rating_batches()[:5]) or "there is none yet"
        raise ConfigError(
            "batch", "no such batch", f"draw one with gustfront quality queue; known: {known}", batch
        )
    return found
