"""The pictures of the Now page as plain HTML: nothing to load, nothing to run, readable before any chart library is.

Lines are SVG images in data addresses (``st.html`` removes inline SVG) that stretch with their card; texts, bars and cells are
HTML and keep their shape. What a pointer rests on says its value by ``title``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.services.heat import HeatMap, HeatRow
from app.services.latency import Series
from app.services.lines import HEIGHT, WIDTH, Frame, log_frame, number, path, time_ticks
from app.services.view import MAX_POINTS
from app.services.wording import clock, count, quantity, seconds, window, zone_word
from app.ui.html import Markup, div, esc
from app.ui.style import RED

LEVELS = 12
"""Shades of the heat map; neighbours of one shade are one rectangle."""


def time_axis(frame: Frame) -> Markup:
    """Labels below a plot, each centred on its time."""
    days = frame.end - frame.start > 2 * 86400
    labels = []
    for t in time_ticks(frame.start, frame.end):
        at = frame.x(t) / WIDTH * 100
        if 3 <= at <= 97:
            text = clock(t, relative_to=frame.end)[:6] if days else clock(t)
            labels.append(f'<span style="left:{at:.1f}%">{esc(text)}</span>')
    return Markup(f'<div class="gf-x">{"".join(labels)}</div>')


def value_axis(frame: Frame, ticks: Sequence[float], text: Callable[[float], str]) -> Markup:
    """Labels left of a plot."""
    labels = [f'<span style="top:{frame.y(v) / HEIGHT * 100:.1f}%">{esc(text(v))}</span>' for v in ticks]
    return Markup(f'<div class="gf-y">{"".join(labels)}</div>')


def image(content: str, *, label: str) -> Markup:
    """The stretching part: an SVG image. ``content`` is ours: numbers and colours, no text from data."""
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" preserveAspectRatio="none">'
        f"<style>path{{fill:none;vector-effect:non-scaling-stroke}}</style>{content}</svg>"
    )
    data = b64encode(text.encode()).decode()
    return Markup(f'<img class="gf-img" alt="{esc(label)}" src="data:image/svg+xml;base64,{data}">')


def block(class_: str, left: float, right: float, title: str) -> str:
    """A cell or bar from ``left`` to ``right`` (0 to :data:`WIDTH`)."""
    a, b = max(0.0, left) / WIDTH * 100, min(WIDTH, right) / WIDTH * 100
    return f'<div class="{esc(class_)}" style="left:{a:.2f}%;width:{max(b - a, 0.15):.2f}%" title="{esc(title)}"></div>'


def lane(cells: str) -> Markup:
    """One line of cells."""
    return Markup(f'<div class="gf-lane">{cells}</div>')


def latency_line(series: Series, threshold: float | None, start: float, end: float, colour: str) -> Markup:
    """The p99 of a class over the range, with its objective as a dotted red line."""
    step = max(1, -(-len(series.t) // MAX_POINTS))
    t, value = series.t[::-step][::-1], series.value[::-step][::-1]
    n, minutes = series.n[::-step][::-1], series.minutes[::-step][::-1]
    values = [float(v) for v in value[np.isfinite(value)]]
    frame, ticks = log_frame(start, end, [*values, *([threshold] if threshold is not None else [])])
    grid = "".join(
        f'<path stroke="#808ca5" stroke-opacity=".22" d="M0 {number(frame.y(v))}H{WIDTH:.0f}"/>'
        for v in ticks
    )
    goal = ""
    if threshold is not None:
        at = number(frame.y(threshold))
        goal = f'<path stroke="{RED}" stroke-width="1.3" stroke-dasharray="3 3" d="M0 {at}H{WIDTH:.0f}"/>'
    line = f'<path stroke="{colour}" stroke-width="1.7" stroke-linejoin="round" d="{path(t, value, frame)}"/>'
    half = WIDTH / max(len(t), 1) / 2
    hover = "".join(
        block(
            "gf-hover",
            frame.x(float(a)) - half,
            frame.x(float(a)) + half,
            f"{clock(float(a))} {zone_word(float(a))}: {seconds(float(v))}, n {count(float(k))} over {window(float(m))}",
        )
        for a, v, k, m in zip(t, value, n, minutes, strict=True)
        if np.isfinite(v)
    )
    label = "TTFT p99 over time" + (f", objective {seconds(threshold)}" if threshold is not None else "")
    return div(
        value_axis(frame, ticks, seconds),
        div(image(grid + goal + line, label=label), lane(hover), class_="gf-pane"),
        time_axis(frame),
        class_="gf-plot",
    )


def runs(row: HeatRow) -> list[tuple[int, int, int]]:
    """(level, first, last + 1) of neighbours with one shade; a gap has level −1."""
    levels = np.where(np.isfinite(row.score), np.round(np.nan_to_num(row.score) * (LEVELS - 1)), -1).astype(
        int
    )
    out: list[tuple[int, int, int]] = []
    for i, level in enumerate(levels.tolist()):
        if out and out[-1][0] == level:
            out[-1] = (level, out[-1][1], i + 1)
        else:
            out.append((level, i, i + 1))
    return out


def short(name: str, most: int = 22) -> str:
    """A long name without its middle."""
    return name if len(name) <= most else name[: most // 2 - 1] + "…" + name[-(most // 2) :]


def _table(lines: Sequence[Markup], names: Sequence[str]) -> Markup:
    """Lines of cells under each other, the column of names as wide as the longest of them."""
    width = 10 + round(6.4 * max((len(short(n)) for n in names), default=0))
    return Markup(f'<div class="gf-heat" style="--names:{width}px">{"".join(lines)}</div>')


def heat_picture(heat: HeatMap, scale: str) -> Markup:
    """Replicas against their own normal: pale is normal, dark is wrong."""
    m = heat.measure
    step = float(heat.t[1] - heat.t[0]) if len(heat.t) > 1 else 60.0
    frame = Frame(float(heat.t[0]) - step, float(heat.t[-1]), 0, 1)
    names = [r.replica for r in heat.rows]
    double = len(set(names)) < len(names)
    lines: list[Markup] = []
    for r in heat.rows:
        cells = []
        for level, a, b in runs(r):
            if level < 0:
                continue
            left, right = frame.x(float(heat.t[a]) - step), frame.x(float(heat.t[b - 1]))
            known = r.value[a:b][np.isfinite(r.value[a:b])]
            value = quantity(float(np.median(known)), m.unit) if len(known) else "no value"
            when = f"{clock(float(heat.t[a]) - step)}–{clock(float(heat.t[b - 1]))}"
            title = f"{r.replica}, {when}: {value}, normal {quantity(r.normal, m.unit)}"
            cells.append(block(f"gf-cell gf-b{level}", left, right, title))
        name = f"{r.pool} / {r.replica}" if double else r.replica
        lines.append(
            div(
                Markup(f'<div class="gf-row-name" title="{esc(name)}">{esc(short(name))}</div>'),
                lane("".join(cells)),
                class_="gf-heat-row",
            )
        )
    shades = "".join(f'<span class="gf-shade gf-b{i}"></span>' for i in range(LEVELS))
    legend = Markup(f'<div class="gf-scale">normal {shades} {esc(scale)}</div>')
    axis = div(Markup('<div class="gf-row-name"></div>'), time_axis(frame), class_="gf-heat-row")
    return _table(
        [*lines, axis, legend], [f"{r.pool} / {r.replica}" if double else r.replica for r in heat.rows]
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the timeline."""

    name: str
    start: float
    end: float
    kind: str
    """``announced``, ``missed``, ``page`` or ``other``."""


def timeline_picture(bars: Sequence[Bar], start: float, end: float) -> Markup:
    """Incidents over the range, one line a name."""
    frame = Frame(start, end, 0, 1)
    lines: list[Markup] = []
    for name in dict.fromkeys(b.name for b in bars):
        cells = "".join(
            block(
                f"gf-cell gf-bar-{b.kind}",
                frame.x(b.start),
                frame.x(b.end),
                f"{b.name}: {b.kind if b.kind == 'announced' else 'open'} {clock(b.start)}–{clock(b.end)}",
            )
            for b in bars
            if b.name == name
        )
        lines.append(
            div(
                Markup(f'<div class="gf-row-name" title="{esc(name)}">{esc(short(name))}</div>'),
                lane(cells),
                class_="gf-heat-row",
            )
        )
    axis = div(Markup('<div class="gf-row-name"></div>'), time_axis(frame), class_="gf-heat-row")
    return _table([*lines, axis], [b.name for b in bars])
