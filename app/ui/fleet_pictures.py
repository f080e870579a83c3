"""Pictures of the fleet pages as plain HTML: small line charts, one square a replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.services.lines import WIDTH, Frame, log_frame, number, path
from app.services.wording import clock, compact, percent, quantity, seconds, zone_word
from app.ui.html import Markup, div, esc
from app.ui.html import span as inline
from app.ui.pictures import LEVELS, block, image, lane, short, time_axis, value_axis
from core.frames import FloatArray

INK = "#808ca5"


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a small chart; ``low`` and ``high`` are shaded around it."""

    name: str
    t: FloatArray
    value: FloatArray
    colour: str
    width: float = 1.7
    dash: str = ""
    low: FloatArray | None = None
    high: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """A level line, such as a normal or r = 1."""

    value: float
    colour: str
    title: str


def said(value: float, unit: str) -> str:
    """An axis label."""
    if unit == "ratio":
        return percent(value, 0 if abs(value * 100 - round(value * 100)) < 1e-6 else 1)
    if unit == "s":
        return seconds(value)
    if unit == "Hz":
        return f"{value / 1e6:,.0f}\u00a0MHz"
    return compact(value)


def lines_picture(
    lines: Sequence[Line],
    start: float,
    end: float,
    *,
    unit: str,
    log: bool = False,
    levels: Sequence[Level] = (),
    marks: Sequence[tuple[float, str]] = (),
    label: str = "",
    height: Literal["", "low", "tall"] = "",
    between: tuple[float, float] | None = None,
) -> Markup:
    """Some curves over a range on one axis; ``marks`` are (time, what happened then), drawn as dotted lines that say it.

    ``between`` fixes the axis, else it holds all values. ``height``: usual, ``low`` or ``tall``.
    """
    values = [x.value for x in levels if np.isfinite(x.value)]
    for line in lines:
        for part in (line.value, line.low, line.high):
            values += [] if part is None else [float(v) for v in part[np.isfinite(part)]]
    frame, ticks = _frame(values, start, end, unit, log, between)
    grid = "".join(
        f'<path stroke="{INK}" stroke-opacity=".22" d="M0 {number(frame.y(v))}H{WIDTH:.0f}"/>' for v in ticks
    )
    flat = "".join(
        f'<path stroke="{x.colour}" stroke-width="1.2" stroke-dasharray="3 3" d="M0 {number(frame.y(x.value))}H{WIDTH:.0f}"/>'
        for x in levels
        if np.isfinite(x.value)
    )
    drawn = "".join(
        f'<path stroke="{x.colour}" stroke-width="{x.width}" stroke-linejoin="round"'
        f'{f" stroke-dasharray={chr(34)}{x.dash}{chr(34)}" if x.dash else ""} d="{path(x.t, x.value, frame)}"/>'
        for x in reversed(lines)
    )
    events = "".join(
        block("gf-event", frame.x(t) - 2, frame.x(t) + 2, f"{clock(t)} {zone_word(t)}: {text}")
        for t, text in marks
        if start <= t <= end
    )
    return div(
        value_axis(frame, ticks, lambda v: said(v, unit)),
        div(
            image(
                grid + "".join(_band(x, frame) for x in lines) + flat + drawn,
                label=label or ", ".join(x.name for x in lines),
            ),
            lane(_hover(lines, frame, unit) + events),
            class_=f"gf-pane gf-{height}" if height else "gf-pane",
        ),
        time_axis(frame),
        class_="gf-plot",
    )


def _frame(
    values: Sequence[float],
    start: float,
    end: float,
    unit: str,
    log: bool,
    between: tuple[float, float] | None,
) -> tuple[Frame, list[float]]:
    if between is not None:
        low, high = between
        step = _step(high - low)
        return Frame(start, end, low, high), [
            float(t) for t in np.arange(np.ceil(low / step) * step, high + step / 1e6, step)
        ]
    if log and any(v > 0 for v in values):
        return log_frame(start, end, values)
    if unit == "ratio":
        return Frame(start, end, 0.0, 1.0), [0.0, 0.5, 1.0]
    top = max(values, default=1.0) * 1.1
    if not top > 0:
        top = 1.0
    step = _step(top)
    return Frame(start, end, 0.0, top), [step * i for i in range(int(top / step) + 1)]


def _step(length: float) -> float:
    """A round step that divides a length into at most three."""
    return next(m * 10.0**e for e in range(-6, 13) for m in (1, 2, 5) if length / (m * 10.0**e) <= 3)


def _band(line: Line, frame: Frame) -> str:
    """The interval of a curve; pieces between gaps."""
    if line.low is None or line.high is None:
        return ""
    known = np.isfinite(line.low) & np.isfinite(line.high)
    low, high = (np.clip(x, frame.low, frame.high) for x in (line.low, line.high))
    out = []
    for run in np.split(np.flatnonzero(known), np.flatnonzero(np.diff(np.flatnonzero(known)) > 1) + 1):
        if len(run) > 1:
            up = [f"{number(frame.x(float(line.t[i])))} {number(frame.y(float(high[i])))}" for i in run]
            down = [
                f"{number(frame.x(float(line.t[i])))} {number(frame.y(float(low[i])))}" for i in run[::-1]
            ]
            out.append(f'<path d="M{"L".join(up + down)}Z" style="fill:{line.colour};fill-opacity:.16"/>')
    return "".join(out)


def _hover(lines: Sequence[Line], frame: Frame, unit: str) -> str:
    """Invisible columns that say every curve's value at their time."""
    if not lines or not len(lines[0].t):
        return ""
    t = lines[0].t
    pick = np.unique(np.linspace(0, len(t) - 1, min(len(t), 60)).astype(int))
    half = WIDTH / max(len(pick), 1) / 2
    out = []
    for i in pick.tolist():
        at = float(t[i])
        parts = []
        for line in lines[:6]:
            j = int(np.argmin(np.abs(line.t - at))) if len(line.t) else -1
            if j >= 0 and np.isfinite(line.value[j]):
                parts.append(f"{line.name} {quantity(float(line.value[j]), unit)}")
        if parts:
            x = frame.x(at)
            out.append(
                block("gf-hover", x - half, x + half, f"{clock(at)} {zone_word(at)}: {', '.join(parts)}")
            )
    return "".join(out)


def key(pairs: Sequence[tuple[str, str]]) -> Markup:
    """A legend of (colour, text)."""
    return div(
        *(inline(Markup(f'<span class="gf-key" style="background:{c}"></span>'), text) for c, text in pairs),
        class_="gf-legend",
    )


def squares_picture(pools: Mapping[str, Sequence[tuple[str, float, str]]], scale: str) -> Markup:
    """One square a replica, a line a pool; (name, how far from normal 0 to 1 or NaN, what a pointer says)."""
    lines = []
    for pool, members in pools.items():
        cells = []
        for name, far, title in members:
            level = "gf-none" if not np.isfinite(far) else f"gf-b{round(far * (LEVELS - 1))}"
            cells.append(f'<span class="gf-square {level}" title="{esc(f"{name}: {title}")}"></span>')
        lines.append(
            div(
                Markup(f'<div class="gf-row-name" title="{esc(pool)}">{esc(short(pool))}</div>'),
                Markup(f'<div class="gf-squares">{"".join(cells)}</div>'),
                class_="gf-heat-row",
            )
        )
    width = 12 + round(6.4 * max((len(short(p)) for p in pools), default=0))
    shades = "".join(f'<span class="gf-shade gf-b{i}"></span>' for i in range(LEVELS))
    legend = Markup(f'<div class="gf-scale">normal {shades} {esc(scale)}</div>')
    return Markup(f'<div class="gf-heat" style="--names:{width}px">{"".join(lines)}{legend}</div>')
