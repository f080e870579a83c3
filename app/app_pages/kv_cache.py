"""KV cache: is the cache what is wrong, is it coming, what would help."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import streamlit as st

from app import queries
from app.services.kv_cache import COMFORT, KvCache, KvPool
from app.services.measures import MEASURES
from app.services.view import View
from app.services.wording import compact, instant, listing, percent, seconds, significant, span
from app.ui import empty, links
from app.ui.fleet_pictures import Level, Line, key, lines_picture
from app.ui.html import Markup, Tone, chip, chips, div, esc, show, table
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.pieces import heat_chart, incident_table, timeline
from app.ui.style import AMBER, BLUE, GREY
from app.ui.tables import sheet
from detectors.storm_warning import NEEDED, Room, outgrown

STATES: dict[str, tuple[str, Tone]] = {
    "wrong": ("the cache is what is wrong", "amber"),
    "coming": ("coming", "amber"),
    "watch": ("to be watched", "amber"),
    "fine": ("not the cache", "green"),
    "unknown": ("cannot be told", "grey"),
}
LOUD = ("wrong", "coming", "watch")
MOST_CARDS = 4
MEASURED = {
    "hit_rate": "Hit rate",
    "kv_usage": "KV in use",
    "recomputed_per_request": "Computed per request",
    "preemptions_per_request": "Preemptions",
    "evictions": "Evictions",
}


def ratio(value: float, missing: str = "not exported") -> str:
    """A share in words."""
    return percent(value, 0) if np.isfinite(value) else missing


def number(label: str, value: str, below: str, title: str = "") -> Markup:
    """One of the numbers of a pool."""
    kind = "gf-number gf-mid" + ("" if value[:1].isdigit() or value[:1] in "≥<>" else " gf-word")
    return div(
        div(label, class_="gf-label", title=title),
        div(value, class_=kind),
        div(below, class_="gf-small gf-soft"),
    )


def room_words(x: Room | None) -> tuple[str, str]:
    """(r, what it means)."""
    if x is None:
        return "unknown", "no sessions, block ages or keys"
    left = x.minutes_left
    if left is not None and left < 24 * 60:
        when = f"full in {span(left * 60)} at this pace"
    elif outgrown(x):
        when = "full"
    elif x.r <= 1:
        when = "never holds them all"
    else:
        when = "not falling towards 1"
    return f"{x.r:.2f}", f"usually {x.usual:.2f} · {when}"


def numbers(p: KvPool) -> None:
    """Usage, hits, room, and what is thrown away."""
    r, meaning = room_words(p.room)
    sampled = (
        f"sampled outputs say {ratio(p.sampled_hit)} (n {p.sampled_n:,})"
        if p.sampled_hit is not None
        else "engine counters"
    )
    usual = f"normal {ratio(p.normal_hit)} · " if np.isfinite(p.normal_hit) else ""
    thrown = "not exported" if not np.isfinite(p.preemptions) else significant(p.preemptions)
    evicted = f"{compact(p.evicted)} evicted a second" if np.isfinite(p.evicted) else "evictions not exported"
    wasted = significant(p.wasted_s) if p.wasted_s > 0.005 else "0"
    show(
        div(
            number(
                "room r",
                r,
                meaning,
                "KV capacity ÷ (active sessions × mean context); at 1 the cache just holds them",
            ),
            number(
                "prompt tokens found", ratio(p.hit), usual + sampled, "prefix cache hits ÷ look-ups, engines"
            ),
            number(
                "KV in use",
                ratio(p.usage),
                f"normal {ratio(p.normal_usage, 'unknown')}",
                "Mean over replicas; high alone is healthy",
            ),
            number(
                "recomputed",
                f"{compact(p.recomputed)}/s",
                f"prompt tokens; {wasted} GPU seconds a second",
                "Computed although normally found",
            ),
            number("preemptions", thrown, f"a finished request · {evicted}"),
            class_="gf-answers",
        )
    )


def how(p: KvPool, model: KvCache) -> str:
    """How the numbers of a pool were computed."""
    lines = [
        f"All numbers are of the last {span(model.seconds)}, by the formulas of the detectors.",
        p.room.text() if p.room is not None else NEEDED,
        "prompt tokens found = prefix cache hits ÷ look-ups, by requests over replicas; normal: the median of five-minute values "
        "in the three hours before the range.",
        "recomputed = tokens computed × (normal hit rate − hit rate) ÷ (1 − hit rate); GPU seconds = the same share of the time "
        "spent on prefill (mean time to first token without queue × requests a second, at most 1 a replica).",
        "sampled outputs: cached over prompt tokens of the outputs sampled in the last half hour.",
    ]
    return "\n".join(lines)


def ages(p: KvPool) -> list[tuple[object, ...]]:
    """Block ages and tiers, as far as they are exported."""
    rows: list[tuple[object, ...]] = []
    for name, value in (
        ("block age at eviction", p.lifetime_s),
        ("idle before eviction", p.idle_s),
        ("gap between two uses", p.gap_s),
    ):
        if np.isfinite(value):
            rows.append((name, seconds(value)))
    for t in p.tiers:
        read = f"{compact(t.read)}/s read" if t.read is not None else "reads not exported"
        written = f", {compact(t.written)}/s written" if t.written is not None else ""
        found = f", {percent(t.hit, 0)} of look-ups found" if t.hit is not None else ""
        rows.append((t.name, read + written + found))
    return rows


def trend(p: KvPool, model: KvCache, view: View) -> None:
    """r over the range."""
    if not np.isfinite(p.trend.r).any():
        show(div("No trend of r: it is not known here.", class_="gf-small gf-soft"))
        return
    source = {
        "blocks": "from block ages",
        "sessions": "from session ids of sampled outputs",
        "keys": "from routing keys",
    }
    said = source[p.room.source] if p.room is not None else ""
    levels = [Level(1.0, AMBER, "the cache is full")]
    if p.room is not None:
        levels.append(Level(p.room.usual, GREY, "usual"))
    show(
        div("r over time, ", inline(said, class_="gf-soft"), class_="gf-small"),
        key([(BLUE, "r"), (AMBER, "1: full"), (GREY, "usual")]),
        lines_picture(
            [Line("r", p.trend.t, p.trend.r, BLUE)],
            model.trend_start,
            view.as_of,
            unit="",
            levels=levels,
            label=f"r of {p.pool}",
            height="low",
        ),
    )


def answer(p: KvPool, view: View) -> None:
    """The answer in words, and what would help."""
    text, tone = STATES[p.state]
    show(
        div(
            inline(p.pool, class_="gf-name", title=p.pool),
            chips([chip(text, tone), chip(f"{len(p.rows)} replicas")]),
            class_="gf-head",
        ),
        div(p.said, class_="gf-p"),
    )
    if p.incident is not None:
        links.to_incident(p.incident.id, view)
    if p.helps:
        items = Markup("".join(f"<li>{esc(x)}</li>" for x in p.helps))
        show(div("What would help", class_="gf-label"), Markup(f'<ul class="gf-list">{items}</ul>'))


def measures(p: KvPool, model: KvCache) -> None:
    """Numbers, ages and tiers, and how they were computed."""
    numbers(p)
    rows = ages(p)
    if rows:
        show(table(["block ages and tiers", ""], rows))
    with st.popover("How computed", type="tertiary", key=f"kv-how-{p.pool}"):
        st.text(how(p, model))


def pool_card(p: KvPool, model: KvCache, view: View) -> None:
    """One pool: the answer first; beside it the trend where something is wrong or coming."""
    with st.container(border=True, gap="xsmall"):
        if p.state in LOUD:
            left, right = st.columns([1.2, 1])
            with left:
                answer(p, view)
            with right:
                trend(p, model, view)
            measures(p, model)
        else:
            answer(p, view)
            measures(p, model)
            trend(p, model, view)


def replica_table(model: KvCache) -> None:
    """All replicas, sortable."""
    frame = pd.DataFrame(
        [
            {
                "pool": r.pool,
                "replica": r.replica,
                "KV in use %": _percent(r.usage),
                "normal use %": _percent(r.normal_usage),
                "found %": _percent(r.hit),
                "normal found %": _percent(r.normal_hit),
                "tokens computed per request": _plain(r.work),
                "recomputed tokens/s": _plain(r.recomputed),
                "GPU s/s wasted": _plain(r.wasted_s, 3),
                "preemptions per request": _plain(r.preempted, 3),
                "evicted/s": _plain(r.evicted),
                "running": _plain(r.running, 1),
                "waiting": _plain(r.waiting, 1),
            }
            for p in model.pools
            for r in p.rows
        ]
    )
    sheet(frame, key="kv-replicas")
    show(div("– means not exported. Click a head to sort.", class_="gf-small gf-soft"))


def _percent(x: float) -> float | None:
    return round(x * 100, 1) if math.isfinite(x) else None


def _plain(x: float, digits: int = 0) -> float | None:
    return round(x, digits) if math.isfinite(x) else None


def summary(model: KvCache) -> None:
    """The page in one line."""
    bad = [p.pool for p in model.pools if p.state == "wrong"]
    coming = [p.pool for p in model.pools if p.state == "coming"]
    watch = [p.pool for p in model.pools if p.state == "watch"]
    blind = [p.pool for p in model.pools if p.room is None]
    if bad:
        text = f"The cache is what is wrong on {listing(bad, 4)}."
    elif coming:
        text = f"The cache is about to be what is wrong on {listing(coming, 4)}."
    elif watch:
        text = f"No cache incident; {listing(watch, 4)} to be watched."
    else:
        text = "The KV cache is not what is wrong."
    show(div(text, class_="gf-title"))
    if blind:
        show(div(f"No early warning for {listing(blind, 6)}. {NEEDED}", class_="gf-small gf-soft"))


def body(view: View) -> None:
    """The live part."""
    model = queries.kv(view)
    show(
        chips(
            [
                chip(f"as of {instant(view.as_of)}", "grey" if view.live else "blue"),
                chip(f"now: the last {span(model.seconds)}"),
            ]
        )
    )
    if not model.pools:
        with st.container(border=True, gap="xsmall"):
            empty.nothing(
                "No replica delivered anything in the last four minutes before this time.",
                "The KV cache is read from kv_cache_usage_ratio and the prefix cache counters; Data health names the flags that "
                "export them.",
            )
        return
    summary(model)
    loud = [p for p in model.pools if p.state in LOUD][:MOST_CARDS]
    quiet = [p for p in model.pools if p.state not in LOUD][: max(0, MOST_CARDS - len(loud))]
    for p in loud:
        pool_card(p, model, view)
    if quiet:
        with st.grid(min(2, len(quiet)), min_column_width=420, gap="small"):
            for p in quiet:
                pool_card(p, model, view)
    rest = [p for p in model.pools if p not in loud and p not in quiet]
    if rest:
        with st.container(border=True, gap="xsmall"):
            show(
                div("Other pools", class_="gf-h"),
                table(
                    ["pool", "state", "r", "prompt tokens found", "normal", "KV in use", "recomputed"],
                    [
                        (
                            p.pool,
                            chip(*STATES[p.state]),
                            room_words(p.room)[0],
                            ratio(p.hit),
                            ratio(p.normal_hit, "unknown"),
                            ratio(p.usage),
                            f"{compact(p.recomputed)}/s",
                        )
                        for p in rest
                    ],
                ),
                div("Choose a pool above for its card.", class_="gf-small gf-soft"),
            )
    left, right = st.columns([1.75, 1])
    with left, st.container(border=True, gap="xsmall"):
        show(div("Replicas against their own normal", class_="gf-h"))
        measure = st.segmented_control(
            "Measure",
            list(MEASURED),
            default="hit_rate",
            format_func=lambda m: MEASURED[m],
            key="kv_measure",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
        )
        chosen = measure or "hit_rate"
        heat = queries.heat(view, chosen)
        if heat.rows:
            heat_chart(heat)
        else:
            empty.nothing(
                f"{MEASURES[chosen].title}: not exported by any replica here.",
                "Data health names the flag that exports it.",
            )
    with right, st.container(border=True, gap="xsmall"):
        show(div("Cache incidents", class_="gf-h"))
        incident_table(model.incidents, view, ())
        timeline(model.incidents, view, ())
    with st.container(border=True, gap="xsmall"):
        show(div(f"All replicas · advice aims at r {COMFORT}", class_="gf-h"))
        replica_table(model)


live(body)
