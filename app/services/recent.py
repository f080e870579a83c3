"""The last minutes of the fleet as detectors see them, so that screens use their formulas and have none of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from app.services.replica_load import SCRAPE, can_show
from app.services.view import View
from core.frames import Frame
from detectors.contract import Context, Need
from detectors.cube import Cube
from detectors.samples import EMPTY, SOFT_GROUPS, Codes, Floats, Samples
from detectors.window import Window
from sql.outputs import Turn
from sql.store import Store, TargetRow

FRAMES = 4_000
"""Frames that are unpacked for one page; larger fleets are read more sparsely."""


def engines(store: Store, view: View, signals: Sequence[str], seconds: float) -> list[TargetRow]:
    """Targets of the view that were there in the last ``seconds`` and may export one of the signals."""
    return [
        row
        for row in store.targets()
        if row.first_seen <= view.as_of
        and row.last_seen >= view.as_of - seconds
        and view.has(pool=row.target.pool, model=row.target.model or None)
        and can_show(row.target.components, signals)
    ]


def affordable(targets: int, wanted: float, least: float) -> float:
    """Seconds of history of so many targets that may be unpacked: ``wanted`` or less, never under ``least``."""
    return max(least, min(wanted, FRAMES * SCRAPE / max(targets, 1) // 60 * 60))


def window(
    store: Store,
    rows: Sequence[TargetRow],
    start: float,
    end: float,
    needs: Sequence[Need],
    hists: Sequence[str] = (),
    *,
    samples: Samples = EMPTY,
    also: Sequence[tuple[float, float]] = (),
) -> Window:
    """The window [start, end) of some targets. ``also`` names earlier spans that are read, with what lies between left out;
    the window then begins with the first of them."""
    begin = min([start, *(a for a, _ in also)])
    cube = Cube(needs, hists, start=begin)
    targets = {row.id: row.target for row in rows}
    ids = list(targets)

    def read(a: float, b: float) -> Iterator[Frame]:
        return store.frames(a, b, target_ids=ids)

    spans = sorted((*(s for s in also if s[0] < start), (start, end)))
    frames = chain.from_iterable(read(a, min(b, start) if a < start else b) for a, b in spans) if ids else ()
    cube.extend(frames, targets, end)
    return Window(cube, cube.cells, Context(), samples)


def sessions_of(turns: Sequence[Turn]) -> Samples:
    """Sampled outputs as the detectors' columns, as far as sessions and tokens go (nothing of what they said)."""
    if not turns:
        return EMPTY
    ts, admitted, pools, replicas, sessions, prompt, output, cached = zip(*turns, strict=True)
    codes: dict[str, int] = {}

    def coded(values: Sequence[str]) -> Codes:
        return np.asarray([codes.setdefault(v, len(codes)) for v in values], np.int32)

    def number(values: Sequence[float | None]) -> Floats:
        return np.asarray([np.nan if v is None else v for v in values], np.float64)

    size = len(ts)
    no, nothing = np.zeros(size, bool), coded([""] * size)
    groups = np.zeros((len(SOFT_GROUPS), size), bool)
    return Samples(
        ts=number(ts),
        admitted=number(admitted),
        pool=coded(pools),
        replica=coded([r.rsplit(":", 1)[0] for r in replicas]),
        workload_class=nothing,
        session=coded(sessions),
        bad=no,
        aside=no,
        soft=groups,
        soft_aside=groups,
        model=nothing,
        release=nothing,
        cache=nothing,
        accept=np.full(size, np.nan),
        prompt_tokens=number(prompt),
        output_tokens=number(output),
        cached_tokens=number(cached),
        rules=((),) * size,
        ids=("",) * size,
        names=tuple(codes),
        codes=codes,
    )
