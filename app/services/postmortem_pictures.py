"""Pictures of a post-mortem as SVG files: no program is needed to draw them, and nothing in them is loaded or run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from app.services.heat import HeatMap
from app.services.incident_view import EvidenceChart, IncidentView
from app.services.lines import HEIGHT, WIDTH, Frame, log_frame, number, path, time_ticks
from app.services.wording import clock, listing, quantity, seconds
from core.frames import FloatArray

RED, GREY, AMBER, BLUE = "#d23c2e", "#8b96aa", "#d08700", "#3f6fe0"
LEFT, TOP, PLOT, TALL, RIGHT = 74, 30, 640, 130, 16
FONT = 'font-family="system-ui, sans-serif" font-size="12" fill="#4d5a73"'
MOST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Picture:
    """A file beside the Markdown: ``name`` (``evidence-kv-usage.svg``), what it shows in words, its SVG."""

    name: str
    alt: str
    svg: str


@dataclass(frozen=True, slots=True)
class _Line:
    t: FloatArray
    value: FloatArray
    colour: str
    width: float


def pictures(v: IncidentView, heat: HeatMap | None) -> list[Picture]:
    """Latency of the classes that are hurt, the evidence, and each replica against its own normal."""
    out = []
    for n, h in enumerate(v.harm[:4], 1):
        s = h.series
        if s is not None and np.isfinite(s.value).any():
            inside = s.t >= v.start
            title = f"{h.class_}: {h.label} p99"
            line = _Line(s.t[inside], s.value[inside], BLUE, 1.7)
            out.append(
                Picture(
                    f"latency-{n}.svg", title, _plot(v, title, [line], seconds, log=True, goal=h.threshold)
                )
            )
    out += [_evidence(v, c) for c in v.charts if not c.flat]
    if heat is not None and heat.rows:
        out.append(_heat(v, heat))
    return out


def _evidence(v: IncidentView, c: EvidenceChart) -> Picture:
    m = c.measure
    lines = [_Line(x.t, x.value, GREY, 1.1) for x in c.control[:15]]
    lines += [_Line(x.t, x.value, RED, 1.7) for x in c.affected]
    title = f"{m.title}: affected in red ({listing([x.replica for x in c.affected], 4) or 'none'}), control group in grey"
    name = f"evidence-{m.id.replace('_', '-')}.svg"
    return Picture(name, title, _plot(v, title, lines, lambda x: quantity(x, m.unit), log=m.log))


def _plot(
    v: IncidentView,
    title: str,
    lines: Sequence[_Line],
    text: Callable[[float], str],
    *,
    log: bool,
    goal: float | None = None,
) -> str:
    """Lines over the time of the incident; onset, warning and end are dotted."""
    values = [float(x) for line in lines for x in line.value[np.isfinite(line.value)]]
    frame, ticks = _frame(v, [*values, *([goal] if goal is not None else [])], log)
    inner = [
        f'<path stroke="{GREY}" stroke-opacity=".3" d="M0 {number(frame.y(t))}H{WIDTH:.0f}"/>' for t in ticks
    ]
    if goal is not None:
        inner.append(
            f'<path stroke="{RED}" stroke-dasharray="3 3" d="M0 {number(frame.y(goal))}H{WIDTH:.0f}"/>'
        )
    for at, colour in (
        (v.incident.announced_at, AMBER),
        (v.incident.started_at, RED),
        (v.incident.ended_at, GREY),
    ):
        if at is not None and frame.start <= at <= frame.end:
            inner.append(
                f'<path stroke="{colour}" stroke-dasharray="2 4" d="M{number(frame.x(at))} 0V{HEIGHT:.0f}"/>'
            )
    inner += [
        f'<path stroke="{x.colour}" stroke-width="{x.width}" stroke-linejoin="round" d="{path(x.t, x.value, frame)}"/>'
        for x in lines
    ]
    labels = [
        f'<text x="{LEFT - 6}" y="{TOP + frame.y(t) / HEIGHT * TALL + 4:.0f}" text-anchor="end">{escape(text(t))}</text>'
        for t in ticks
    ]
    plot = (
        f'<svg x="{LEFT}" y="{TOP}" width="{PLOT}" height="{TALL}" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" '
        'preserveAspectRatio="none"><style>path{fill:none;vector-effect:non-scaling-stroke}</style>'
        f"{''.join(inner)}</svg>"
    )
    return _sheet(title, plot + "".join(labels) + _times(frame, TOP + TALL), TOP + TALL + 26)


def _frame(v: IncidentView, values: Sequence[float], log: bool) -> tuple[Frame, list[float]]:
    if log:
        return log_frame(v.start, v.end, values)
    top = max((x for x in values if np.isfinite(x)), default=1.0) or 1.0
    step = 10.0 ** np.floor(np.log10(top))
    if top / step < 2:
        step /= 2
    elif top / step > 5:
        step *= 2
    ticks = [float(x) for x in np.arange(0, top + step / 2, step)]
    return Frame(v.start, v.end, min(0.0, *values, 0.0), top * 1.06), ticks


def _times(frame: Frame, y: int) -> str:
    out = []
    for t in time_ticks(frame.start, frame.end):
        x = LEFT + frame.x(t) / WIDTH * PLOT
        out.append(f'<text x="{x:.0f}" y="{y + 16}" text-anchor="middle">{escape(clock(t))}</text>')
    return "".join(out)


def _heat(v: IncidentView, heat: HeatMap) -> Picture:
    rows = heat.rows[:MOST_ROWS]
    step = float(heat.t[1] - heat.t[0]) if len(heat.t) > 1 else 60.0
    frame = Frame(float(heat.t[0]) - step, float(heat.t[-1]), 0, 1)
    tall, cells = 16, []
    for n, r in enumerate(rows):
        y = TOP + n * (tall + 2)
        name = r.replica if len(r.replica) <= 14 else r.replica[:5] + "…" + r.replica[-8:]
        cells.append(f'<text x="{LEFT + 20}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        for i, score in enumerate(r.score.tolist()):
            if np.isfinite(score):
                a = LEFT + 26 + frame.x(float(heat.t[i]) - step) / WIDTH * (PLOT - 26)
                wide = step / (frame.end - frame.start) * (PLOT - 26)
                shade = 0.08 + 0.92 * min(max(score, 0.0), 1.0)
                cells.append(
                    f'<rect x="{a:.1f}" y="{y}" width="{wide + 0.3:.1f}" height="{tall}" fill="#2148b0" '
                    f'fill-opacity="{shade:.2f}"/>'
                )
    end = TOP + len(rows) * (tall + 2)
    for t in time_ticks(frame.start, frame.end):
        x = LEFT + 26 + frame.x(t) / WIDTH * (PLOT - 26)
        cells.append(f'<text x="{x:.0f}" y="{end + 14}" text-anchor="middle">{escape(clock(t))}</text>')
    title = f"{heat.measure.title} against each replica's own normal: dark is far from normal"
    return Picture("replicas.svg", title, _sheet(title, "".join(cells), end + 24))


def _sheet(title: str, content: str, tall: int) -> str:
    """A whole SVG file on white, with its title."""
    wide = LEFT + PLOT + RIGHT
    head = title if len(title) <= 104 else title[:103] + "…"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}" {FONT}>'
        f'<rect width="{wide}" height="{tall}" fill="#ffffff"/>'
        f'<text x="8" y="18" font-weight="600" fill="#1f2a44">{escape(head)}</text>{content}</svg>\n'
    )
