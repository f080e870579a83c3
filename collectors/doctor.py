"""What one target exports and what it lacks: the answer of ``gustfront doctor``.

:func:`examine` reads a body as a scrape would and reports components, every canonical signal found (and from which raw family),
missing (and which flag of the engine would export it) or ambiguous, and what was dropped and why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from collectors.dictionary import Component, Dictionary, Entry, canonical_name, load_dictionary
from collectors.exposition import Exposition, Limits, parse
from collectors.mapping import plan
from collectors.plan import Chosen, Plan, Silent, unit_of
from core.classes import ClassRules
from core.frames import Column, FloatArray
from core.records import Problem
from core.roles import Roles
from core.signals import SIGNALS

UNKNOWN = "unknown"


def examine(
    body: bytes | str,
    *,
    name: str = "",
    classes: ClassRules | None = None,
    roles: Roles | None = None,
    limits: Limits | None = None,
    dictionary: Dictionary | None = None,
) -> dict[str, Any]:
    """The doctor's findings about one body, as JSON-ready values.

    Keys: ``target``, ``components`` (``["unknown"]`` where the text cannot tell), ``engine`` (the component that serves the
    model, else the first), ``version``, ``model``, ``role``, ``series``, ``signals`` (id to ``family``, ``families``,
    ``component`` and ``value`` for gauges or ``count`` for counters, totals and histograms), ``missing`` (``id``, ``flag``),
    ``ambiguous`` (``id``, ``family``, ``also``), ``dropped`` (``reason``, ``count``), ``unused`` families, ``problems``.
    Never raises on a body's content.
    """
    dictionary = dictionary or load_dictionary()
    exposition = parse(body, limits=limits, source=name)
    target = (roles or Roles()).target(name, {}, "doctor")
    found = plan(exposition.series, dictionary, classes or ClassRules(), target)
    gauges, counts, sums = found.apply(exposition.values)
    shown = _Values(found, gauges, counts, sums)
    signals = {id: _signal(c, shown, exposition) for id, c in sorted(found.signals.items())}
    signals |= _derived(found, signals, dictionary, shown)
    signals |= {id: _silent(s) for id, s in found.silent.items() if id not in signals}
    problems = [*exposition.problems, *found.problems(exposition.values, source=name)]
    if not found.components:
        problems.append(_unknown(name, exposition))
    dropped = dict(exposition.dropped)
    for reason, n in found.dropped.items():
        dropped[reason] = dropped.get(reason, 0) + n
    reasons, unused = _unused(found, exposition, dictionary)
    if reasons:
        dropped |= reasons
        dropped["unmapped"] = max(dropped.get("unmapped", 0) - sum(reasons.values()), 0)
    return {
        "target": name,
        "components": list(found.components) or [UNKNOWN],
        "engine": _engine(found, dictionary),
        "version": found.target.version,
        "model": found.target.model,
        "role": found.target.role,
        "series": len(exposition.series),
        "signals": dict(sorted(signals.items())),
        "missing": _missing(found, signals, dictionary),
        "ambiguous": [
            {"id": id, "family": c.families[0], "also": list(c.also), "component": c.component}
            for id, c in sorted(found.signals.items())
            if c.also and c.combine == "first"
        ],
        "dropped": [{"reason": r, "count": n} for r, n in sorted(dropped.items()) if n],
        "unused": unused,
        "problems": [problem_json(p) for p in problems],
    }


class _Values:
    """The values of a plan's columns, for showing."""

    def __init__(
        self, found: Plan, gauges: FloatArray, counts: np.ndarray[Any, Any], sums: FloatArray
    ) -> None:
        self._slots = dict(zip(found.layout.columns, found.layout.slots, strict=True))
        self._gauges, self._counts, self._sums = gauges, counts, sums

    def of(self, column: Column) -> float:
        """The gauge's value, the counter's or histogram's count, the total; NaN where there is none."""
        g, n, s = self._slots[column]
        if column.kind == "gauge":
            return float(self._gauges[g][0])
        if column.kind == "sum":
            return float(self._sums[s][0])
        counts = self._counts[n]
        return math.nan if (counts < 0).any() else float(counts.sum())


def _signal(chosen: Chosen, values: _Values, exposition: Exposition) -> dict[str, Any]:
    out: dict[str, Any] = {
        "family": chosen.families[0],
        "families": list(chosen.families),
        "component": chosen.component,
    }
    columns = chosen.columns
    if not columns:  # shown, never stored: process start, and gauges that are not to be believed
        raw = [float(v) for i in chosen.rows if math.isfinite(v := float(exposition.values[i]))]
        out |= {"value": _percent(chosen.signal, max(raw)) if raw else None}
    else:
        main = (
            [c for c in columns if c.signal == chosen.signal]
            or [c for c in columns if c.signal == f"{chosen.signal}_count"]
            or list(columns)
        )
        gauge = main[0].kind == "gauge"
        numbers = [v for c in main if c.kind == main[0].kind and not math.isnan(v := values.of(c))]
        out["value" if gauge else "count"] = _join(main[0], numbers) if numbers else None
        forms = sorted({c.signal for c in columns if c.signal != chosen.signal})
        if forms:
            out["forms"] = forms
        labels = sorted({k for c in columns for k, _ in c.labels} - {"class"})
        if labels:
            out["labels"] = labels
        units = sorted({unit_of(c) for c in main})
        out["unit"] = units[0] if len(units) == 1 else ", ".join(units)
    if chosen.unusable:
        out["used"] = False
    if chosen.notes:
        out["note"] = "; ".join(chosen.notes)
    return out


def _silent(silent: Silent) -> dict[str, Any]:
    """A family that is there without the series that would mean the signal: named, without a number."""
    inside = ", ".join(f"{k}={v}" for k, v in silent.where.items())
    return {
        "family": silent.family,
        "families": [silent.family],
        "component": silent.component,
        "count": None,
        "note": f"no series with {inside} so far",
    }


def _percent(signal: str, value: float) -> float:
    return value / 100 if SIGNALS[signal].unit == "0..1" and value > 1.5 else value


def _join(column: Column, numbers: list[float]) -> float:
    """One number for several columns of a signal: as the signal joins ranks for gauges, added otherwise."""
    across = SIGNALS[column.signal].across if column.kind == "gauge" else "sum"
    if across == "max":
        return max(numbers)
    return sum(numbers) / len(numbers) if across == "mean" else sum(numbers)


def _derived(
    found: Plan, signals: Mapping[str, Any], dictionary: Dictionary, values: _Values
) -> dict[str, dict[str, Any]]:
    """Signals that can be computed from those found."""
    out: dict[str, dict[str, Any]] = {}
    for name in found.components:
        for id, ways in dictionary.derived(name).items():
            if id in signals or id in out:
                continue
            for way in ways:
                have = [n for n in way.needs if n in found.signals]
                if len(have) == len(way.needs):
                    families = [found.signals[n].families[0] for n in way.needs]
                    a, b = (_whole(found.signals[n], values) for n in way.needs)
                    out[id] = {
                        "family": families[0],
                        "families": families,
                        "component": name,
                        "count": a - b if a >= b else None,
                        "derived": way.formula,
                    }
                    break
                if have and id not in out:
                    out[id] = {
                        "family": found.signals[have[0]].families[0],
                        "families": [found.signals[n].families[0] for n in have],
                        "component": name,
                        "count": None,
                        "derived": way.formula,
                        "needs": [n for n in way.needs if n not in have],
                    }
    return out


def _whole(chosen: Chosen, values: _Values) -> float:
    """The sum over a signal's columns that count answered requests."""
    columns = [c for c in chosen.columns if c.label("status") in ("", "2xx", "200")]
    found = [v for c in columns if c.kind != "sum" and not math.isnan(v := values.of(c))]
    return sum(found) if found else math.nan


def _missing(found: Plan, signals: Mapping[str, Any], dictionary: Dictionary) -> list[dict[str, str]]:
    """What the components could export and do not, or cannot export at all, in plain words."""
    out: dict[str, dict[str, str]] = {}
    for name in found.components:
        component = dictionary.components[name]
        ways_to: dict[str, list[Entry]] = {}
        for e in dictionary.entries(name):
            if e.signal not in signals and e.signal not in dictionary.derived(name):
                ways_to.setdefault(e.signal, []).append(e)
        for id, entries in ways_to.items():
            plain = entries[0].combine == "first" and any(not e.source.flag for e in entries)
            flag = "" if plain else next((e.source.flag for e in entries if e.source.flag), "")
            out.setdefault(id, {"id": id, "component": name, "flag": flag})
        for id, ways in dictionary.derived(name).items():
            if id not in signals:
                flag = next((w.flag for w in ways if w.flag), "")
                out.setdefault(id, {"id": id, "component": name, "flag": flag})
        for id, reason in component.absent.items():
            if id not in signals:
                out.setdefault(id, {"id": id, "component": name, "flag": "", "reason": reason})
    for row in out.values():
        if not row["flag"] and "reason" not in row:
            row["flag"] = dictionary.components[row["component"]].enable
    return [out[id] for id in sorted(out)]


def _engine(found: Plan, dictionary: Dictionary) -> str:
    """The component that serves the model: one that does not stand back for others; ``unknown`` without any."""
    if not found.components:
        return UNKNOWN
    return min(found.components, key=lambda c: dictionary.components[c].detect.yields)


def _unused(found: Plan, exposition: Exposition, dictionary: Dictionary) -> tuple[dict[str, int], list[str]]:
    """Series that are known and not read, by reason, and the names of those that no dictionary knows (at most 50).

    ``second_source``: another family gives the signal. ``known_unused``: no signal needs the family.
    """
    components: list[Component] = [dictionary.components[c] for c in found.components]
    prefixes = tuple(canonical_name(p) for c in components for p in c.known)
    sources = {n for c in found.components for n in dictionary.lookup(c)}
    everywhere = ("python_", "process_", "go_", "scrape_", "promhttp_", "http_")
    reasons: dict[str, int] = {}
    strange: dict[str, None] = {}
    for i, (name, _) in enumerate(exposition.series):
        if i in found.used:
            continue
        canonical = canonical_name(name)
        if canonical in sources:
            reasons["second_source"] = reasons.get("second_source", 0) + 1
        elif (
            canonical == "up"
            or canonical.startswith(everywhere)
            or (prefixes and canonical.startswith(prefixes))
        ):
            reasons["known_unused"] = reasons.get("known_unused", 0) + 1
        elif len(strange) < 50:
            strange[name] = None
    return reasons, list(strange)


def _unknown(name: str, exposition: Exposition) -> Problem:
    text = (
        "no family of a known component; metrics of something else, or too short a piece"
        if exposition.series
        else "no readable sample"
    )
    fix = "check that the address is the engine's metrics endpoint"
    if any(series == "prometheus_build_info" for series, _ in exposition.series):
        text = "the metrics of a Prometheus server about itself, not those of its targets"
        fix = "name it as a source, `prometheus: {url: ...}`, and look at that configuration"
    return Problem(0.0, name, "unknown_component", "body", text, fix)


def problem_json(p: Problem) -> dict[str, Any]:
    """A problem as JSON-ready values, without what is empty."""
    out: dict[str, Any] = {"code": p.code, "subject": p.subject, "message": p.message}
    if p.fix:
        out["fix"] = p.fix
    if p.count != 1:
        out["count"] = p.count
    return out
