"""Objectives: p99, attainment, budget and burn, each from one measurement point, with everything that is not known beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.services import latency
from app.services.engine_slo import Engine, engine_tallies, narrowed
from app.services.gateway import (
    Fold,
    GatewayMinutes,
    Where,
    applies,
    excluded_minutes,
    folder,
    read_gateway,
)
from app.services.latency import Hists, Matrix, Windowed
from app.services.slo_sampled import sampled
from app.services.view import View
from app.services.wording import span
from core.burn import Burn, MinuteTallies, burns
from core.config import Config, SloConfig
from core.slo import SAMPLED, TTFT, Attainment, Objective, Tally, attain
from core.windows import start_of
from sql.store import Store


@dataclass(frozen=True, slots=True)
class LayoutP99:
    """The p99 of one bucket layout alone: what ``histogram_quantile`` of one engine's buckets shows."""

    pools: tuple[str, ...]
    edges: tuple[float, ...]
    now: Windowed


@dataclass(frozen=True, slots=True)
class SloRow:
    """One objective at ``as_of``. ``point`` is where it was measured; ``other`` the same objective at the other point.

    ``p99`` None: not exported. ``window`` is [start, end) of the attainment. ``notes`` say what the number does not know.
    """

    config: SloConfig
    objective: Objective
    point: str
    p99: Windowed | None
    layouts: tuple[LayoutP99, ...]
    p99_end: float
    attainment: Attainment
    window: tuple[float, float]
    covered_minutes: int
    burns: tuple[Burn, ...]
    other: Attainment | None
    notes: tuple[str, ...]
    minutes: MinuteTallies | None = None
    """Tallies under the start of their minute, of their hour where no minute matters."""

    @property
    def budget_left(self) -> tuple[float, float] | None:
        """(low, high) share of the budget left; None without traffic or with too little of it."""
        if self.attainment.state in ("no_traffic", "too_few"):
            return None
        return self.attainment.budget_left

    @property
    def gone_in(self) -> float | None:
        """Seconds until the budget is gone at the pace of the last hour; None where it is not burning faster than allowed."""
        if not self.burns or self.budget_left is None or self.budget_left[1] <= 0:
            return None
        pace = self.burns[0].long[0]
        return self.burns[0].gone_in if math.isfinite(pace) and pace > 1 else None


def rows(store: Store, view: View, config: Config, read: Fold | None = None) -> tuple[SloRow, ...]:
    """All configured objectives that pass the view's class filter, in the order of the configuration.

    ``read`` folds the gateway log; one that remembers finished spans makes a long window cheap.
    """
    wanted = [s for s in config.slos if view.has(class_=s.class_)]
    if not wanted:
        return ()
    end = latency.last_minute(view)
    objectives = [Objective.from_config(s) for s in wanted]
    first = min(start_of(o, end) for o in objectives)
    where = Where(view.pool, view.model, tuple(store.exclusions(first, end)))
    asked = [o for o in objectives if o.from_requests]
    gateway = read_gateway(read or folder(store), asked, end, where) if asked else {}
    return tuple(
        row(store, s, o, view, end, where, gateway.get(o.name))
        for s, o in zip(wanted, objectives, strict=True)
    )


def slo_rows(store: Store, config: Config, start: float, end: float) -> tuple[SloRow, ...]:
    """All configured objectives over [start, end) instead of their own windows; whole minutes."""
    spanned = [s.model_copy(update={"window": end - start, "calendar": None}) for s in config.slos]
    view = View(start, end, live=False)
    return rows(store, view, config.model_copy(update={"slos": spanned}))


def row(
    store: Store,
    slo: SloConfig,
    objective: Objective,
    view: View,
    end: float,
    where: Where,
    gateway: GatewayMinutes | None,
) -> SloRow:
    """One objective."""
    start = start_of(objective, end)
    measured: dict[str, Judged] = {}
    if objective.sli in SAMPLED:
        made, tallies, seen = sampled(store, objective, start, end, where)
        point = "sample"
        measured[point] = (made, tallies, round(seen))
    else:
        point = choose_point(slo.point, gateway)
        # Beside a gateway's number the engine's needs no minutes: nothing burns on it.
        coarse = point != "engine"
        engine = engine_tallies(store, objective, start, end, view, where.exclusions, coarse=coarse)
        if objective.from_engine:
            measured["engine"] = _judge_engine(objective, engine, start, end, where)
        if gateway is not None:
            measured[gateway.point] = _judge_gateway(objective, gateway, start, end)
    matrix, hists = latency_hists(store, objective, end, view)
    attainment, minutes, covered = measured.get(point) or attain_nothing(objective)
    others = [m[0] for name, m in measured.items() if name != point]
    if point != "engine" and gateway is not None and objective.signal == TTFT:
        p99: Windowed | None = gateway.p99_at(end)
    elif objective.from_engine:
        p99 = latency.current(hists, 0.99) if hists else None
    else:
        p99 = None
    left = attainment.budget_left[0] if math.isfinite(attainment.budget_left[0]) else 1.0
    return SloRow(
        config=slo,
        objective=objective,
        point=point,
        p99=p99,
        layouts=layout_rows(matrix, hists, view),
        p99_end=end,
        attainment=attainment,
        window=(start, end),
        covered_minutes=covered,
        burns=tuple(burns(objective, minutes, end, left=left)),
        other=others[0] if others else None,
        notes=notes_for(objective, point, attainment, hists),
        minutes=minutes,
    )


def latency_hists(store: Store, o: Objective, end: float, view: View) -> tuple[Matrix, Hists]:
    """The engine's histogram of a latency objective in the last hour, raw and on a grid of minutes; empty for other kinds."""
    nothing: tuple[Matrix, Hists] = ({}, {})
    if o.sli != "latency" or not o.from_engine:
        return nothing
    view = narrowed(view, o)
    start = end - latency.LOOK_BACK
    matrix = store.rollup_matrix(o.signal, start, end, step=60, classes=[o.class_])
    return matrix, latency.on_grid(matrix, start, end, 60.0, view=view).get(o.class_, {})


def choose_point(wanted: str, gateway: GatewayMinutes | None) -> str:
    """``auto``: the gateway log where there is one, else the engine."""
    if wanted == "auto":
        return gateway.point if gateway is not None else "engine"
    return wanted


def attain_nothing(objective: Objective) -> Judged:
    """The objective where its point delivered nothing."""
    return (attain(objective, Tally(), minutes=objective.window / 60, covered=0), MinuteTallies({}), 0)


Judged = tuple[Attainment, MinuteTallies, int]
"""Attainment, tallies per minute and covered minutes."""


def _judge_engine(objective: Objective, e: Engine, start: float, end: float, where: Where) -> Judged:
    gone = [x for x in where.exclusions if applies(x, objective, objective.pool)]
    minutes = (end - start) / 60 - excluded_minutes(gone, start, end)
    made = attain(objective, e.total, minutes=minutes, covered=e.covered, edge=e.edge)
    return (made, MinuteTallies(e.fine), round(e.covered))


def _judge_gateway(objective: Objective, g: GatewayMinutes, start: float, end: float) -> Judged:
    minutes = MinuteTallies(g.tallies)
    length = (end - start) / 60 - g.excluded
    made = attain(objective, minutes.window(start, end), minutes=length, covered=g.covered)
    return (made, minutes, g.covered)


def layout_rows(matrix: Matrix, hists: Hists, view: View) -> tuple[LayoutP99, ...]:
    """p99 of each bucket layout alone, with the pools that have it."""
    pools: dict[tuple[float, ...], set[str]] = {}
    for _, pool, _, model, edges in matrix:
        if view.has(pool=pool, model=model):
            pools.setdefault(edges, set()).add(pool)
    return tuple(
        LayoutP99(tuple(sorted(pools.get(edges, ()))), edges, latency.current({edges: counts}, 0.99))
        for edges, counts in hists.items()
    )


def notes_for(o: Objective, point: str, a: Attainment, hists: Hists) -> tuple[str, ...]:
    """What the attainment does not know, in words."""
    out: list[str] = []
    if point == "engine":
        if not a.tally.aborts_known and a.state != "no_traffic":
            out.append(
                "Requests that clients gave up on are not exported by every engine here: the truth can only be lower."
            )
        off = [e for e in hists if e and not any(abs(x - o.threshold) <= 1e-9 * o.threshold for x in e)]
        if off:
            out.append(
                "The threshold lies between two bucket edges of the engine: attainment is an interval. "
                "A bucket edge at the threshold, or a gateway log, makes it exact."
            )
    if a.tally.bad_or_excluded:
        out.append(
            f"{a.tally.bad_or_excluded:,} requests were given up at an unknown age: late or not, the interval covers both."
        )
    if a.tally.excluded:
        out.append(
            f"{a.tally.excluded:,} excluded: given up within the threshold, or the client's own errors."
        )
    return tuple(out)


def covered_text(row_: SloRow) -> str:
    """How much of the window has data."""
    return f"data for {span(row_.covered_minutes * 60)} of {span(row_.window[1] - row_.window[0])}"
