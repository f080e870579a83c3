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
from app.services.view import MAX_POINTS
from app.services.wording import clock, count, quantity, seconds, window
from app.ui.charts import TICKS
from app.ui.html import Markup, div, esc
from app.ui.style import RED
from core.frames import FloatArray

WIDTH, HEIGHT = 1000.0, 100.0
LEVELS = 12
"""Shades of the heat map; neighbours of one shade are one rectangle."""
TIME_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where data lie: x is time; y is value, logarithmic if ``log``."""

    start: float
    end: float
    low: float
    high: float
    log: bool = False

    def x(self, t: float) -> float:
        """0 to :data:`WIDTH`."""
        return float((t - self.start) / max(self.end - self.start, 1e-9) * WIDTH)

    def y(self, value: float) -> float:
        """:data:`HEIGHT` (bottom) to 0."""
        if self.log:
            at = (np.log10(value) - np.log10(self.low)) / (np.log10(self.high) - np.log10(self.low))
        else:
            at = (value - self.low) / max(self.high - self.low, 1e-12)
        return float((1 - at) * HEIGHT)


def number(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def time_ticks(start: float, end: float, most: int = 6) -> list[float]:
    """Round times in the range, at most ``most``."""
    step = next((s for s in TIME_STEPS if (end - start) / s <= most), TIME_STEPS[-1])
    first = -(-start // step) * step
    return [float(t) for t in np.arange(first, end + 1e-6, step)]


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


def path(t: FloatArray, value: FloatArray, frame: Frame) -> str:
    """``M…L…`` of a line; it breaks at gaps."""
    out: list[str] = []
    pen = "M"
    for x, v in zip(t, value, strict=True):
        if not np.isfinite(v) or (frame.log and v <= 0):
            pen = "M"
            continue
        y = min(max(frame.y(float(v)), -2.0), HEIGHT + 2.0)
        out.append(f"{pen}{number(frame.x(float(x)))} {number(y)}")
        pen = "L"
    return "".join(out)


def log_frame(start: float, end: float, values: Sequence[float]) -> tuple[Frame, list[float]]:
    """A logarithmic frame around the values, and at most three round ticks in it."""
    good = [v for v in values if np.isfinite(v) and v > 0] or [0.1, 1.0]
    low, high = min(good) / 1.35, max(good) * 1.35
    ticks = [t for t in TICKS if low <= t <= high]
    while len(ticks) > 4:
        ticks = ticks[::2]
    return Frame(start, end, low, high, log=True), ticks


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
            f"{clock(float(a))} UTC: {seconds(float(v))}, n {count(float(k))} over {window(float(m))}",
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
