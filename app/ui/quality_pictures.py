"""Pictures of the Quality × load page: rates with intervals over time and over load, effects beside each other, bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.services.lines import HEIGHT, WIDTH, Frame, number, path
from app.services.quality_page import effect, per_10k
from app.services.wording import clock, significant, zone_word
from app.ui.html import Markup, div, esc
from app.ui.pictures import block, image, lane, time_axis, value_axis
from app.ui.style import BLUE, GREY
from core.frames import FloatArray
from detectors.quality.analysis import Analysis, Point
from detectors.quality.rates import RateInterval
from detectors.quality.strata import Stratum

INK = "#808ca5"
SPAN_X = (0.25, 64.0)
"""Rate ratios that the effect picture spans."""


def nice(high: float) -> list[float]:
    """Zero and two or three round values up to ``high``."""
    if not high > 0:
        return [0.0, 1.0]
    step = next(m * 10.0**e for e in range(-3, 7) for m in (1, 2, 5) if high / (m * 10.0**e) <= 3)
    return [step * i for i in range(int(high / step) + 1)]


def _band(t: FloatArray, low: FloatArray, high: FloatArray, frame: Frame, colour: str) -> str:
    """A filled area; pieces between gaps."""
    out, run = [], []
    for i in range(len(t) + 1):
        if i < len(t) and np.isfinite(low[i]) and np.isfinite(high[i]):
            run.append(i)
            continue
        if len(run) > 1:
            up = [f"{number(frame.x(t[j]))} {number(max(frame.y(min(high[j], frame.high)), 0))}" for j in run]
            down = [f"{number(frame.x(t[j]))} {number(min(frame.y(low[j]), HEIGHT))}" for j in reversed(run)]
            out.append(f'<path d="M{"L".join(up + down)}Z" style="fill:{colour};fill-opacity:.16"/>')
        run = []
    return "".join(out)


def _grid(frame: Frame, ticks: Sequence[float]) -> str:
    return "".join(
        f'<path stroke="{INK}" stroke-opacity=".22" d="M0 {number(frame.y(v))}H{WIDTH:.0f}"/>' for v in ticks
    )


def _arrays(points: Sequence[Point]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    t = np.asarray([p.at for p in points])
    known = np.asarray([p.rate.n > 0 for p in points])
    value, low, high = (
        np.where(known, [getattr(p.rate, f) * 1e4 if p.rate.n else np.nan for p in points], np.nan)
        for f in ("value", "low", "high")
    )
    return t, value, low, high, np.asarray([p.load for p in points])


def _top(value: FloatArray, high: FloatArray) -> float:
    """An axis that holds the values and most intervals, whatever a thin bin allows."""
    good = value[np.isfinite(value)]
    wide = high[np.isfinite(high)]
    if not len(good):
        return 10.0
    return float(max(good.max() * 1.25, np.quantile(wide, 0.6) if len(wide) else 0.0, 2.0))


def rate_picture(a: Analysis, points: Sequence[Point], *, colour: str = BLUE, tall: bool = True) -> Markup:
    """Degraded outputs per 10,000 over time, exact interval shaded, the usual rate dotted."""
    t, value, low, high, _ = _arrays(points)
    frame = Frame(a.start, a.end, 0.0, _top(value, high))
    ticks = nice(frame.high)
    usual = a.baseline.value * 1e4 if a.baseline.n else None
    normal = (
        f'<path stroke="{INK}" stroke-width="1.2" stroke-dasharray="3 3" d="M0 {number(frame.y(usual))}H{WIDTH:.0f}"/>'
        if usual is not None and usual <= frame.high
        else ""
    )
    line = f'<path stroke="{colour}" stroke-width="1.8" stroke-linejoin="round" d="{path(t, value, frame)}"/>'
    half = a.step / 2
    hover = "".join(
        block(
            "gf-hover",
            frame.x(p.at - half),
            frame.x(p.at + half),
            f"{clock(p.at - half)}–{clock(p.at + half)} {zone_word(p.at)}: {per_10k(p.rate)} per 10,000, "
            f"{p.rate.k} of {p.rate.n:,}" + ("" if np.isnan(p.load) else f", load ×{p.load:.2f}"),
        )
        for p in points
        if p.rate.n
    )
    return div(
        value_axis(frame, ticks, lambda v: significant(v) if v else "0"),
        div(
            image(
                _grid(frame, ticks) + _band(t, low, high, frame, colour) + normal + line,
                label="Degraded outputs per 10,000 over time",
            ),
            lane(hover),
            class_="gf-pane gf-tall" if tall else "gf-pane",
        ),
        time_axis(frame),
        class_="gf-plot",
    )


def load_picture(a: Analysis) -> Markup:
    """Load that the outputs met, relative to its mean, beneath the rate and on the same time axis."""
    t, _, _, _, load = _arrays(a.over_time)
    good = load[np.isfinite(load)]
    low, high = (float(good.min()), float(good.max())) if len(good) else (0.5, 1.5)
    room = max(high - low, 0.2) * 0.15
    frame = Frame(a.start, a.end, max(0.0, low - room), high + room)
    ticks = [v for v in (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0) if frame.low <= v <= frame.high]
    while len(ticks) > 3:
        ticks = ticks[::2]
    line = f'<path stroke="{GREY}" stroke-width="1.6" stroke-linejoin="round" d="{path(t, load, frame)}"/>'
    return div(
        value_axis(frame, ticks, lambda v: f"×{v:g}" if v else "0"),
        div(image(_grid(frame, ticks) + line, label="Load over time"), class_="gf-pane gf-low"),
        time_axis(frame),
        class_="gf-plot",
    )


def decile_picture(a: Analysis) -> Markup:
    """Degraded per 10,000 in each tenth of the outputs by load, with exact intervals."""
    _, value, _, high, _ = _arrays(a.deciles)
    frame = Frame(0.0, float(len(a.deciles)), 0.0, _top(value, high))
    ticks = nice(frame.high)
    parts, hover, labels = [], [], []
    for i, p in enumerate(a.deciles):
        x, tenth = frame.x(i + 0.5), int(p.at) - 1
        if p.rate.n:
            v, lo, hi = p.rate.per_10k()
            y = frame.y(min(v, frame.high))
            left, right = number(frame.x(i + 0.2)), number(frame.x(i + 0.8))
            whisker = f"M{number(x)} {number(frame.y(lo))}V{number(frame.y(min(hi, frame.high)))}"
            parts.append(
                f'<path d="M{left} {HEIGHT:.0f}V{number(y)}H{right}V{HEIGHT:.0f}Z" '
                f'style="fill:{BLUE};fill-opacity:.55"/>'
                f'<path stroke="{INK}" stroke-width="1.4" d="{whisker}"/>'
            )
        missing = (
            f", {a.missing_by_decile[tenth]:.1%} given up"
            if tenth < len(a.missing_by_decile) and a.missing_by_decile[tenth] == a.missing_by_decile[tenth]
            else ""
        )
        hover.append(
            block(
                "gf-hover",
                frame.x(i),
                frame.x(i + 1),
                f"load ×{p.load:.2f}: {per_10k(p.rate)} per 10,000, {p.rate.k} of {p.rate.n:,}{missing}",
            )
        )
        labels.append(f'<span style="left:{x / WIDTH * 100:.1f}%">{esc(f"×{p.load:.2g}")}</span>')
    return div(
        value_axis(frame, ticks, lambda v: significant(v) if v else "0"),
        div(
            image(_grid(frame, ticks) + "".join(parts), label="Degraded outputs by tenth of load"),
            lane("".join(hover)),
            class_="gf-pane gf-tall",
        ),
        Markup(f'<div class="gf-x">{"".join(labels)}</div>'),
        class_="gf-plot",
    )


def effects_picture(a: Analysis) -> Markup:
    """Crude, adjusted and mechanism ratio on one log axis, with the line at 2 that the decision rests on."""
    found = a.load
    rows: list[tuple[str, tuple[float, float, float] | None, str]] = [
        ("crude", found.crude, "Nothing held fixed: what a plain chart of rate against load would say"),
        (
            "adjusted",
            None
            if found.ratio is None or found.low is None or found.high is None
            else (found.ratio, found.low, found.high),
            "Class, prompt length, model and release held fixed: the effect that the verdict is about",
        ),
        ("+ cache path", found.mechanism, "Cache path and preemption held fixed as well: the mechanism"),
    ]
    low, high = (float(np.log2(v)) for v in SPAN_X)

    def at(ratio: float) -> float:
        return float((np.log2(min(max(ratio, SPAN_X[0]), SPAN_X[1])) - low) / (high - low) * 100)

    lines = []
    for name, value, help_ in rows:
        if value is None:
            continue
        v, lo, hi = value
        strong = " gf-strong" if name == "adjusted" else ""
        lines.append(
            Markup(
                f'<div class="gf-heat-row" title="{esc(help_)}"><div class="gf-row-name">{esc(name)}</div>'
                f'<div class="gf-lane gf-effect"><div class="gf-two-line" style="left:{at(2):.1f}%"></div>'
                f'<div class="gf-one-line" style="left:{at(1):.1f}%"></div>'
                f'<div class="gf-whisker{strong}" style="left:{at(lo):.1f}%;width:{max(at(hi) - at(lo), 0.6):.1f}%"></div>'
                f'<div class="gf-dot{strong}" style="left:{at(v):.1f}%"></div></div>'
                f'<div class="gf-row-value">{esc(effect(value))}</div></div>'
            )
        )
    ticks = "".join(
        f'<span style="left:{at(v):.1f}%">{esc("×" + format(v, "g"))}</span>'
        for v in (0.5, 1.0, 2.0, 4.0, 8.0, 32.0)
    )
    axis = Markup(
        f'<div class="gf-heat-row"><div class="gf-row-name"></div><div class="gf-x">{ticks}</div><div></div></div>'
    )
    return Markup(
        f'<div class="gf-heat gf-effects gf-ratios" style="--names:84px">{"".join([*lines, axis])}</div>'
    )


def _bar(name: str, r: RateInterval, top: float, *, strong: bool, title: str, right: str) -> Markup:
    value, low, high = r.per_10k() if r.n else (0.0, 0.0, 0.0)

    def at(x: float) -> float:
        return min(x / top, 1.0) * 100

    kind = "gf-rate-strong" if strong else "gf-rate"
    return Markup(
        f'<div class="gf-heat-row" title="{esc(title)}"><div class="gf-row-name">{esc(name)}</div>'
        f'<div class="gf-lane gf-effect"><div class="gf-cell {kind}" style="left:0;width:{at(value):.1f}%"></div>'
        f'<div class="gf-whisker" style="left:{at(low):.1f}%;width:{max(at(high) - at(low), 0.4):.1f}%"></div></div>'
        f'<div class="gf-row-value">{esc(right)}</div></div>'
    )


def strata_picture(strata: Sequence[Stratum]) -> Markup:
    """One bar a level: its rate with interval; amber where it is named as standing out."""
    known = [s for s in strata if s.rate.n][:14]
    top = max([s.rate.per_10k()[0] * 1.3 for s in known] + [1.0])
    top = max(top, min(max((s.rate.per_10k()[2] for s in known), default=1.0), 3 * top))
    lines = [
        _bar(
            s.level or "not said",
            s.rate,
            top,
            strong=s.named,
            title=f"{s.level}: {per_10k(s.rate)} per 10,000, all others {s.rest * 1e4:.1f}; e-value {s.evidence:.3g}",
            right=f"{per_10k(s.rate)} · {s.rate.k:,} of {s.rate.n:,}",
        )
        for s in known
    ]
    width = 12 + round(6.4 * min(22, max((len(s.level) for s in known), default=8)))
    return Markup(f'<div class="gf-heat gf-effects" style="--names:{width}px">{"".join(lines)}</div>')


def kinds_picture(a: Analysis) -> Markup:
    """Which rules fired in the degraded outputs."""
    most = max((n for _, n in a.kinds), default=1)
    lines = [
        Markup(
            f'<div class="gf-heat-row"><div class="gf-row-name">{esc(name.replace("_", " "))}</div>'
            f'<div class="gf-lane"><div class="gf-cell gf-rate" style="left:0;width:{n / most * 100:.1f}%"></div></div>'
            f'<div class="gf-row-value">{n:,}</div></div>'
        )
        for name, n in a.kinds
    ]
    return Markup(f'<div class="gf-heat gf-effects gf-kinds" style="--names:118px">{"".join(lines)}</div>')
