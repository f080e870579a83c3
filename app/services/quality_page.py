"""The Quality × load page from one analysis: numbers as they are shown, rows of samples, and exports."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.services.view import View
from app.services.wording import significant, stamp
from core.incidents import Incident
from detectors.quality.analysis import Analysis, analyse, cascade
from detectors.quality.cascade import TURNS, Cascade
from detectors.quality.history import Place
from detectors.quality.rates import RateInterval
from sql.output_counts import BadOutput
from sql.store import Store

KIND = "degraded_generations"
DIMENSIONS = (
    "replica",
    "load",
    "class",
    "cache path",
    "last change",
    "time since start",
    "release",
    "prompt length",
    "structured",
    "pool",
    "model",
)
MOST_SAMPLES = 200
EXPORT = (
    "id",
    "ts",
    "admitted",
    "class",
    "pool",
    "replica",
    "model",
    "release",
    "session",
    "turn",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "e2e_s",
    "verdict",
    "rules",
    "random",
    "weight",
    "structured",
    "language",
    "cache_source",
    "first_of_session",
)


@dataclass(frozen=True)
class QualityPage:
    """``analysis`` and the incidents of the same time and place, the latest first."""

    analysis: Analysis
    incidents: tuple[Incident, ...]


def load(store: Store, view: View) -> QualityPage:
    """The analysis of the view's range and filters."""
    found = analyse(store, view.start, view.as_of, place(view))
    known = store.incidents(start=view.start, end=view.as_of, kinds=[KIND])
    mine = [
        i
        for i in known
        if (i.detected_at or i.announced_at or i.started_at) <= view.as_of
        and (not view.pool or view.pool in i.pools)
        and (not view.class_ or not i.classes or view.class_ in i.classes)
    ]
    return QualityPage(found, tuple(sorted(mine, key=lambda i: -i.started_at)))


def tasks(store: Store, view: View) -> list[Cascade]:
    """How likely a task stays clean, per class."""
    return cascade(store, view.start, view.as_of, place(view))


def place(view: View) -> Place:
    """The filters."""
    return Place(view.pool, view.class_, view.model)


def per_10k(r: RateInterval) -> str:
    """``13 (9.2–18)`` or the reason why there is none."""
    if not r.n:
        return "no output"
    value, low, high = (significant(x) for x in r.per_10k())
    return f"{value} ({low}–{high})"


def effect(x: tuple[float, float, float] | None) -> str:
    """``×4.1 (2.2–7.9)``."""
    if x is None:
        return "not known"
    high = "∞" if x[2] > 1000 else f"{x[2]:.1f}"
    return f"×{x[0]:.1f} ({x[1]:.1f}–{high})"


def rules_of(b: BadOutput) -> dict[str, float]:
    """Rules that fired, with their measure."""
    found: dict[str, float] = orjson.loads(b.rules)
    return found


def samples(a: Analysis) -> list[BadOutput]:
    """Degraded outputs, the latest first; those of the pool that the verdict is about before others."""
    latest = list(reversed(a.history.all_bad))
    mine = [b for b in latest if not a.focus or b.pool == a.focus]
    return [*mine, *(b for b in latest if a.focus and b.pool != a.focus)][:MOST_SAMPLES]


def clean_text(c: Cascade, turns: int) -> str:
    """``95 % (93–97 %)`` or a dash where too few sessions are that long."""
    if turns not in c.clean:
        return "–"
    value, low, high = (100 * x for x in c.clean[turns])
    digits = 1 if value > 90 else 0
    return f"{value:.{digits}f} % ({low:.{digits}f}–{high:.{digits}f})"


def task_rows(found: Sequence[Cascade]) -> list[tuple[object, ...]]:
    """Rows of the table of tasks."""
    rows: list[tuple[object, ...]] = []
    for c in found:
        after = "no turn seen" if c.after is None else f"{c.after[0]} of {c.after[1]:,} degraded"
        how = f"measured, {c.turns:,} turns" if c.measured else f"(1 − p)ⁿ from {c.turns:,} outputs"
        rows.append((c.class_, *(clean_text(c, n) for n in TURNS), after, how))
    return rows


def export_rows(a: Analysis) -> list[dict[str, Any]]:
    """One row for each degraded output, without text."""
    first = {b.id for b in a.history.first}
    rows = []
    for b in a.history.all_bad:
        row = b._asdict()
        row["class"] = row.pop("class_")
        row["first_of_session"] = b.id in first
        rows.append({name: row[name] for name in EXPORT})
    return rows


def to_csv(a: Analysis) -> bytes:
    """Degraded outputs as CSV; cells that a spreadsheet would run as formulas are quoted with an apostrophe."""
    out = io.StringIO()
    writer = csv.DictWriter(out, EXPORT)
    writer.writeheader()
    for row in export_rows(a):
        writer.writerow({k: _inert(v) for k, v in row.items()})
    return out.getvalue().encode()


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value


def to_parquet(a: Analysis) -> bytes:
    """Counts by five minutes with load at admission, one row a cell: what the regression saw."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    c, labels = a.history.cells, a.history.labels
    table: dict[str, Any] = {
        "t": c.t,
        "outputs": c.n,
        "degraded": c.k,
        "load": c.load,
        **{name.replace(" ", "_"): [one.values[i] for i in one.code] for name, one in labels.items()},
    }
    out = io.BytesIO()
    pq.write_table(pa.table(table), out)
    return out.getvalue()


def file_name(a: Analysis, what: str) -> str:
    """``degraded-2026-09-21T15-00-00Z.csv``."""
    return f"{what.split('.')[0]}-{stamp(a.end).replace(':', '-')}.{what.split('.')[1]}"


def as_json(a: Analysis) -> dict[str, Any]:
    """For ``gustfront analyse quality --json``."""

    def interval(r: RateInterval) -> dict[str, Any]:
        known = bool(r.n)
        value, low, high = r.per_10k()
        return {
            "per_10k": value if known else None,
            "low": low if known else None,
            "high": high if known else None,
            "degraded": r.k,
            "outputs": r.n,
        }

    return {
        "start": stamp(a.start),
        "end": stamp(a.end),
        "pool": a.place.pool or None,
        "class": a.place.class_ or None,
        "verdict": a.verdict.code,
        "title": a.verdict.title,
        "because": list(a.verdict.because),
        "next": a.verdict.next,
        "pool_carrying": a.focus or None,
        "rate": interval(a.rate),
        "baseline": interval(a.baseline),
        "e_value": min(a.evidence, 1e300),
        "load_correlated": a.load.verdict,
        "load": a.load.as_json(),
        "deciles": [
            {"decile": int(p.at), "load": None if p.load != p.load else p.load, **interval(p.rate)}
            for p in a.deciles
        ],
        "missing": None if a.missing is None else {"low_load": a.missing[0], "high_load": a.missing[1]},
        "strata": [
            {
                "dimension": s.dimension,
                "level": s.level,
                **interval(s.rate),
                "rest_per_10k": s.rest * 1e4,
                "e_value": min(s.evidence, 1e300),
                "named": s.named,
            }
            for s in a.strata.strata
        ],
        "kinds": dict(a.kinds),
    }
