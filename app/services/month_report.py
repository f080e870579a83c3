"""A month per class, as a product owner reports it: what was promised, what was kept, what it cost, against the month before."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.services.budget import eaten
from app.services.gateway import POINTS
from app.services.month_costs import Costs, costs
from app.services.rates import Rate, rate
from app.services.slo_report import plain, state_words
from app.services.slos import SloRow, rows
from app.services.view import View
from app.services.wording import percent, promise, seconds, span
from core.buckets import quantile
from core.config import Config
from core.incidents import Incident, iso
from core.lifecycle import FALSE_LABELS, fold
from core.requests import BANDS, RequestCell, RequestKey
from core.slo import GAVE_UP, Objective, Tally, cell_tally, concerns
from core.windows import month_before, month_span
from sql.output_counts import BIN
from sql.store import Store

DAY = 86400.0
WORST = 5
FREEZE_AFTER = 2 * 3600.0
"""Seconds after its end at which a month is closed: logs arrive late."""


@dataclass(frozen=True, slots=True)
class Day:
    """One day of an objective: ``share`` [low, high] good of ``n`` requests, ``bad`` of them bad."""

    day: str
    share: list[float]
    n: int
    bad: int


@dataclass(frozen=True, slots=True)
class Part:
    """A tenant or a prompt-length band: requests, bad ones; ``p99`` in words where it was asked for."""

    name: str
    n: int
    bad: int
    p99: str = ""


@dataclass(frozen=True, slots=True)
class ObjectiveMonth:
    """One objective over the month. ``before``: attainment of the month before, in words. ``frozen_at`` None: not closed yet.

    ``restated``: what late data made of a frozen month, "" where nothing changed.
    """

    name: str
    definition: str
    version: str
    point: str
    coverage: float
    reportable: bool
    attained: str
    attainment: list[float] | None
    state: str
    budget_left: list[float] | None
    counts: dict[str, int]
    before: str
    days: list[Day]
    tenants: list[Part]
    bands: list[Part]
    eaten: list[dict[str, Any]]
    frozen_at: str | None
    restated: str
    exclusions: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """An incident of the month; times in seconds from its onset, None where it did not happen or nobody said."""

    id: str
    title: str
    kind: str
    severity: str
    started: str
    detect: float | None
    acknowledge: float | None
    resolve: float | None
    false_page: bool


@dataclass(frozen=True, slots=True)
class ClassMonth:
    """One class over the month. ``quality`` per ten thousand with its interval; ``unmet``: turned away and given up."""

    class_: str
    objectives: list[ObjectiveMonth]
    requests: int
    unmet: dict[str, int]
    incidents: list[IncidentLine]
    sessions: dict[str, Any]
    degraded: dict[str, Any]
    costs: Costs
    before: Costs


@dataclass(slots=True)
class MonthReport:
    """A whole report; ``closed`` false while the month still runs."""

    month: str
    start: float
    end: float
    made_at: float
    closed: bool
    gpu_price: float | None
    currency: str
    classes: list[ClassMonth] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data; times ISO 8601."""
        out = asdict(self)
        for key in ("start", "end", "made_at"):
            out[key] = iso(out[key])
        return out


def month_report(
    store: Store,
    config: Config,
    month: str,
    *,
    gpu_price: float | None = None,
    currency: str = "EUR",
    classes: Sequence[str] | None = None,
    now: float | None = None,
    freeze: bool = True,
) -> MonthReport:
    """The report of ``2026-09``. A closed month is frozen in the store the first time (where it can be written): later data then
    appear as a restatement beside what was reported, never in its place."""
    start, end = month_span(month)
    made_at = time.time() if now is None else now
    closed = made_at >= end + FREEZE_AFTER
    until = min(end, _data_end(store, made_at))
    out = MonthReport(month, start, end, made_at, closed, gpu_price, currency)
    if until <= start:
        return out
    found = _month_rows(store, config, start, end, until)
    previous = {r.config.name: r for r in _month_rows(store, config, *month_span(month_before(month)), end)}
    own = {x.name: x for x in config.slos}
    names = dict.fromkeys([*config.class_names, *(s.class_ for s in config.slos)])
    cells = store.request_cells(start, until, hourly=True)
    names |= dict.fromkeys(sorted({k.class_ for k, _ in cells}))
    for name in names:
        if classes and name not in classes:
            continue
        mine = [(k, c) for k, c in cells if k.class_ == name]
        made = [
            _objective(
                store,
                r,
                Objective.from_config(own[r.config.name]),
                previous.get(r.config.name),
                mine,
                month,
                made_at if closed and freeze else None,
            )
            for r in found
            if r.objective.class_ == name
        ]
        spent = costs(store, name, start, until, mine)
        before = costs(store, name, *month_span(month_before(month)))
        lines = _incidents(store, name, start, until)
        if not (made or mine or spent.output_tokens):
            continue
        out.classes.append(
            ClassMonth(
                name,
                made,
                sum(c.n for _, c in _one_point(mine)),
                _unmet(mine),
                lines,
                _sessions(store, name, start, until),
                _degraded(store, name, start, until),
                spent,
                before,
            )
        )
    return out


def _data_end(store: Store, now: float) -> float:
    newest = [t for t in (store.newest(), store.newest_attempt()) if t is not None]
    return math.floor(min(max(newest, default=0.0), now) / 60) * 60.0


def _month_rows(store: Store, config: Config, start: float, end: float, until: float) -> tuple[SloRow, ...]:
    """All objectives over the month instead of their own windows; coverage is of what has passed of it."""
    stop = min(end, until)
    if stop <= start:
        return ()
    spanned = [s.model_copy(update={"window": stop - start, "calendar": None}) for s in config.slos]
    return rows(store, View(start, stop, live=False), config.model_copy(update={"slos": spanned}))


def _objective(
    store: Store,
    row: SloRow,
    original: Objective,
    before: SloRow | None,
    cells: Sequence[tuple[RequestKey, RequestCell]],
    month: str,
    freeze_at: float | None,
) -> ObjectiveMonth:
    a = row.attainment
    counts = dict(
        zip(
            ("good", "bad", "either", "bad_or_excluded", "excluded", "unmet", "errors", "good_or_excluded"),
            a.tally.counts,
            strict=True,
        )
    )
    frozen_at, restated = _frozen(store, original, month, counts, a.text(), freeze_at)
    mine = [(k, c) for k, c in cells if concerns(original, k) and k.point == row.point]
    exclusions = [
        {"start": iso(e.start), "end": iso(e.end), "author": e.author, "reason": e.reason}
        for e in store.exclusions(*row.window)
        if e.class_ in ("", original.class_) and e.slo in ("", original.name)
    ]
    return ObjectiveMonth(
        name=original.name,
        definition=definition(original),
        version=original.version,
        point=row.point,
        coverage=a.coverage,
        reportable=a.reportable,
        attained=plain(a.text()) if a.reportable else f"not reportable ({plain(a.text())} of what was seen)",
        attainment=None if math.isnan(a.low) else [a.low, a.high],
        state=state_words(row),
        budget_left=None if row.budget_left is None else list(row.budget_left),
        counts=counts,
        before="no data"
        if before is None or before.attainment.state == "no_traffic"
        else before.attainment.text(),
        days=worst_days(row),
        tenants=_parts(original, mine, "tenant"),
        bands=_parts(original, mine, "band"),
        eaten=[
            {
                "incident": e.incident.title if e.incident else "outside any incident",
                "id": e.incident.id if e.incident else None,
                "bad": e.bad,
                "share": e.share,
            }
            for e in eaten(store, row)
        ],
        frozen_at=frozen_at,
        restated=restated,
        exclusions=exclusions,
    )


def definition(o: Objective) -> str:
    """What was promised, in a sentence."""
    good = {
        "latency": f"{short(o.signal)} of at most {seconds(o.threshold)}",
        "availability": "an answer",
        "goodput": " and ".join(f"{short(s)} ≤ {seconds(t)}" for s, t in o.joint),
        "degraded": "an output that is not degraded",
        "tool_calls": "a valid tool call",
        "determinism": "a canary's answer the same as its reference",
        "throughput": f"at least {o.threshold:g} tokens/s of a busy replica",
    }[o.sli]
    narrow = [
        f"{label} {value}"
        for label, value in (("tenant", o.tenant), ("model", o.model), ("pool", o.pool))
        if value
    ]
    if o.bands:
        narrow.append("prompts of " + ", ".join(o.bands) + " tokens")
    where = f" ({'; '.join(narrow)})" if narrow else ""
    unit = "minutes" if o.slice_target else "requests"
    return plain(f"{promise(o.target)} of {unit}{where} with {good}")


def short(signal: str) -> str:
    """The latency as people say it."""
    return {
        "ttft_seconds": "time to first token",
        "time_per_output_token_seconds": "time per output token",
        "inter_token_latency_seconds": "inter-token latency",
        "request_latency_seconds": "end-to-end time",
        "queue_time_seconds": "queue time",
    }.get(signal, signal.removesuffix("_seconds").replace("_", " "))


def _frozen(
    store: Store, o: Objective, month: str, counts: Mapping[str, int], text: str, freeze_at: float | None
) -> tuple[str | None, str]:
    """Freeze a closed month, or compare with what was frozen; (when it was frozen, restatement)."""
    kept = store.slo_months(o.name, month)
    data = {"counts": dict(counts), "attained": plain(text)}
    if not kept:
        if freeze_at is None:
            return None, ""
        store.add_slo_version(o.name, o.version, freeze_at, o.definition())
        store.add_slo_month(o.name, month, o.version, freeze_at, data)
        return iso(freeze_at), ""
    first, last = kept[0], kept[-1]
    if last.data.get("counts") != data["counts"] and freeze_at is not None:
        reason = "late data" if last.version == o.version else f"definition changed to {o.version}"
        last = store.add_slo_month(o.name, month, o.version, freeze_at, data, reason)
    if last.seq == 0:
        return iso(first.made_at), ""
    was = f"reported {first.data.get('attained')} on {iso(first.made_at)}"
    return iso(
        first.made_at
    ), f"{was}; restated {last.data.get('attained')} on {iso(last.made_at)} ({last.reason})"


def worst_days(row: SloRow) -> list[Day]:
    """The days (UTC) with the most bad requests, worst first."""
    if row.minutes is None or not len(row.minutes.minutes):
        return []
    start, end = row.window
    out = []
    day = math.floor(start / DAY) * DAY
    while day < end:
        t = row.minutes.window(max(day, start), min(day + DAY, end))
        low, high = t.attainment
        if t.bad and not math.isnan(low):
            out.append(Day((iso(day) or "")[:10], [low, high], t.counted, t.bad))
        day += DAY
    return sorted(out, key=lambda d: -d.bad)[:WORST]


def _parts(o: Objective, cells: Sequence[tuple[RequestKey, RequestCell]], by: str) -> list[Part]:
    """Tenants by bad requests, or bands in their order with their p99 of the time to first token."""
    if not o.from_requests:
        return []
    groups: dict[str, list[tuple[RequestKey, RequestCell]]] = {}
    for key, cell in cells:
        groups.setdefault(getattr(key, by), []).append((key, cell))
    out = []
    for name, mine in groups.items():
        tally = Tally()
        for key, cell in mine:
            tally += cell_tally(o, key.status, cell)
        p99 = first_token_p99(mine) if by == "band" else ""
        out.append(Part(name or "not named", tally.counted, tally.bad, p99))
    if by == "band":
        return sorted(out, key=lambda p: BANDS.index(p.name) if p.name in BANDS else len(BANDS))
    return sorted((p for p in out if p.bad), key=lambda p: -p.bad)[:WORST]


def first_token_p99(cells: Sequence[tuple[RequestKey, RequestCell]]) -> str:
    """``2.1 s (1.9–2.3, n 4,312)`` of the time to first token, those given up counting with their age."""
    seen = [c for k, c in cells if 200 <= k.status < 300 or k.status in GAVE_UP]
    q = quantile([c.ttft for c in seen], 0.99, censored=[c.age for k, c in cells if k.status in GAVE_UP])
    if q.state == "above":
        return plain(f"≥ {seconds(q.low)} (n {q.n:,})")
    if q.value is None:
        return f"not enough data (n {q.n:,})"
    return plain(f"{seconds(q.value)} ({seconds(q.low)} to {seconds(q.high)}, n {q.n:,})")


def _one_point(cells: Sequence[tuple[RequestKey, RequestCell]]) -> list[tuple[RequestKey, RequestCell]]:
    """The cells of the best point that has any: an attempt in two logs is one attempt."""
    present = {k.point for k, _ in cells}
    point = next((p for p in POINTS if p in present), None)
    return [(k, c) for k, c in cells if k.point == point]


def _unmet(cells: Sequence[tuple[RequestKey, RequestCell]]) -> dict[str, int]:
    """Demand that was not met: turned away (429), unavailable (503), other failures, given up by the client."""
    out = {"429": 0, "503": 0, "failed": 0, "given_up": 0}
    for key, cell in _one_point(cells):
        if str(key.status) in out:
            out[str(key.status)] += cell.n
        elif key.status in GAVE_UP:
            out["given_up"] += cell.n
        elif key.status >= 500:
            out["failed"] += cell.n
    return out


def _incidents(store: Store, class_: str, start: float, end: float) -> list[IncidentLine]:
    found = [
        i
        for i in store.incidents(start=start, end=end)
        if i.severity in ("page", "ticket") and (class_ in i.classes or not i.classes)
    ]
    return [_line(store, i) for i in sorted(found, key=lambda i: i.started_at)]


def _line(store: Store, i: Incident) -> IncidentLine:
    log = store.incident_log(i.id)
    acknowledged = min((e.ts for e in log if e.action.startswith("acknowledge")), default=None)
    return IncidentLine(
        i.id,
        i.title,
        i.kind,
        i.severity,
        iso(i.started_at) or "",
        None if i.detected_at is None else i.detected_at - i.started_at,
        None if acknowledged is None else acknowledged - i.started_at,
        None if i.ended_at is None else i.ended_at - i.started_at,
        fold(log).label in FALSE_LABELS,
    )


def _sessions(store: Store, class_: str, start: float, end: float) -> dict[str, Any]:
    """Sessions of the sample without a degraded turn, and the risk that the turn after a bad one is bad too."""
    n, broken = store.sampled_sessions(start, end, class_)
    clean = n - len(broken)
    steps = [step for turns in broken for step in itertools.pairwise(turns)]
    after_bad = [b for a, b in steps if a]
    risk = rate(sum(after_bad), len(after_bad), min_n=20)
    share = rate(clean, n)
    return {
        "n": n,
        "clean": clean,
        "clean_share": share.value,
        "cascade_risk": risk.value,
        "cascade_interval": [risk.low, risk.high] if risk.state == "ok" else None,
        "text": plain(
            f"{percent(share.value, 2)} of {n:,} sampled sessions had no degraded turn"
            if n
            else "no sessions in the sample"
        ),
        "cascade_text": plain(_cascade(risk)),
    }


def _cascade(risk: Rate) -> str:
    if risk.state != "ok":
        return "not enough turns after a bad one"
    return (
        f"after a bad turn {percent(risk.value, 1)} of the next are bad too"
        f" ({percent(risk.low, 1)} to {percent(risk.high, 1)})"
    )


def _degraded(store: Store, class_: str, start: float, end: float) -> dict[str, Any]:
    """Degraded generations per ten thousand sampled outputs with their exact interval."""
    first, last = math.floor(start / BIN) * BIN, math.ceil(end / BIN) * BIN
    n = hits = 0
    for row in store.output_counts(first, last, classes=[class_]):
        n += row.n
        hits += row.hard
    found = rate(hits, n, min_n=500)
    return {"n": n, "bad": hits, "per_10k": plain(found.per_10k()), "low": found.low, "high": found.high}


def lasting(value: float | None) -> str:
    """``4 min``; a dash where it did not happen."""
    return "–" if value is None else plain(span(value))
