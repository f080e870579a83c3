"""A small fleet's history, written through the store as collectors write it, with numbers that a test can check by hand.

Pool ``coder`` (three replicas, class ``coding-agent``, objective 5 s) stalls on two replicas in the last 20 minutes; pool
``mixed`` (two replicas with other buckets, classes ``chat`` and ``batch``) is calm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.frames import Column, Layout, Reading, Target, column
from core.incidents import Evidence, Incident, RuledOut
from core.records import Event, OutputRecord, Problem, RequestRecord
from core.requests import fine_edges, fold
from sql.store import Store

START = 1_790_000_400.0  # 2026-09-21 14:20 UTC, a whole minute
MINUTES = 100
STORM_MINUTE = 80
END = START + MINUTES * 60
STORM = START + STORM_MINUTE * 60
TICK = 15.0
VLLM = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
SGLANG = (0.1, 0.2, 0.4, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 20.0, 60.0)
ITL = (0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
PER_TICK = 20
"""Requests finished by a replica in 15 s."""
HOSTILE = "<img src=x onerror=alert(1)>![x](http://evil.invalid/leak.png)[y](javascript:alert(1)) $x$ :red[z]"

CONFIG = """
database: {database}
classes:
  - {{name: coding-agent, match: ['pool="coder"']}}
  - {{name: chat, match: ['workload="chat"']}}
  - {{name: batch, match: ['workload="batch"']}}
slos:
  - {{name: coding-agent-ttft, class: coding-agent, signal: ttft_seconds, threshold: 5s, objective_percent: 99, window: 28d}}
  - {{name: chat-ttft, class: chat, signal: ttft_seconds, threshold: 1s, objective_percent: 99, window: 28d, point: engine}}
  - {{name: batch-ttft, class: batch, signal: ttft_seconds, threshold: 5s, objective_percent: 99, window: 28d, point: engine}}
"""


@dataclass(frozen=True)
class History:
    """Where it is."""

    url: str
    config: Path
    incident_id: str = "storm-1"


def _columns(edges: tuple[float, ...], classes: tuple[str, ...], aborts: bool) -> list[Column]:
    out: list[Column] = []
    for c in classes:
        out += [
            column("ttft_seconds", "histogram", edges, class_=c),
            column("inter_token_latency_seconds", "histogram", ITL, class_=c),
            column("request_latency_seconds", "histogram", edges, class_=c),
            column("request_success_total", "counter", class_=c),
        ]
        if aborts:
            out.append(column("aborted_total", "counter", class_=c))
    shared = classes[0] if len(classes) == 1 else "shared"
    return [
        *out,
        column("requests_waiting", "gauge", class_=shared),
        column("requests_running", "gauge", class_=shared),
        column("kv_cache_usage_ratio", "gauge", class_=shared),
        column("prefix_cache_queries_tokens_total", "counter", class_=shared),
        column("prefix_cache_hit_tokens_total", "counter", class_=shared),
    ]


def _bucket(edges: tuple[float, ...], value: float) -> int:
    return int(np.searchsorted(edges, value, side="left"))


def readings(
    pool: str,
    replica: str,
    *,
    edges: tuple[float, ...],
    classes: tuple[str, ...],
    ttft: float,
    stalls: bool,
    component: str,
) -> list[Reading]:
    """One replica's scrapes. ``ttft`` is the usual time to first token; while it stalls every second request takes 60 s."""
    layout = Layout(tuple(_columns(edges, classes, aborts=component == "sglang")))
    target = Target(
        address=f"{replica}:8000",
        pool=pool,
        replica=replica,
        source="test",
        components=(component,),
        model="glm-5",
        version="1.0",
    )
    g, n, s = layout.size
    counts, sums = np.zeros(n, np.int64), np.zeros(s)
    out = []
    for tick in range(int(MINUTES * 60 / TICK)):
        t = START + (tick + 1) * TICK
        bad = stalls and t > STORM
        gauges = np.zeros(g)
        for i, c in enumerate(layout.columns):
            gs, ns, ss = layout.slots[i]
            share = PER_TICK // len(classes)
            late = share // 2 if bad else 0
            if c.signal in ("ttft_seconds", "request_latency_seconds"):
                extra = 0.0 if c.signal == "ttft_seconds" else 3.0
                counts[ns.start + _bucket(edges, ttft + extra)] += share - late
                counts[ns.start + _bucket(edges, 60.0)] += late
                sums[ss] += (share - late) * (ttft + extra) + late * 60.0
            elif c.signal == "inter_token_latency_seconds":
                counts[ns.start + _bucket(ITL, 0.03)] += share * 50
                sums[ss] += share * 50 * 0.03
            elif c.signal == "request_success_total":
                counts[ns] += share
            elif c.signal == "prefix_cache_queries_tokens_total":
                counts[ns] += PER_TICK * 1000
            elif c.signal == "prefix_cache_hit_tokens_total":
                counts[ns] += 0 if bad else PER_TICK * 950
            elif c.signal == "requests_waiting":
                gauges[gs] = 30.0 if bad else 0.0
            elif c.signal == "requests_running":
                gauges[gs] = 8.0
            elif c.signal == "kv_cache_usage_ratio":
                gauges[gs] = 0.97 if bad else 0.4
        out.append(Reading(target, t, layout, gauges, counts.copy(), sums.copy(), start=START - 3600))
    return out


def storm(replicas: tuple[str, ...] = ("coder-0", "coder-1"), **changes: object) -> Incident:
    """The incident that a detector would have saved."""
    values: dict[str, object] = {
        "id": "storm-1",
        "kind": "kv_eviction_storm",
        "severity": "page",
        "state": "open",
        "title": "KV eviction storm on coder",
        "started_at": STORM,
        "announced_at": STORM + 60,
        "detected_at": STORM + 120,
        "diagnosed_at": STORM + 120,
        "classes": ("coding-agent",),
        "pools": ("coder",),
        "replicas": replicas,
        "cause": "Sessions outgrew the cache",
        "confidence": 0.93,
        "runner_up": "capacity_shortfall",
        "evidence": (
            Evidence("prefix_cache_hit_tokens_total", "coder", 0.95, 0.0, 0.95, STORM + 90, "ratio"),
            Evidence("ttft_seconds", "coder", 2.0, 60.0, 2.0, STORM + 100, "s"),
        ),
        "ruled_out": (RuledOut("capacity_shortfall", "work per request constant?", "×20"),),
        "updated_at": STORM + 180,
    }
    return Incident(**{**values, **changes})  # type: ignore[arg-type]


def gateway_records() -> list[RequestRecord]:
    """One coding-agent attempt every three seconds; in the storm every fifth is given up after 30 s."""
    out = []
    for i in range(int(MINUTES * 60 / 3)):
        t = START + i * 3.0 + 1
        gone = t > STORM and i % 5 == 0
        out.append(
            RequestRecord(
                ts=t,
                status=499 if gone else 200,
                workload_class="coding-agent",
                duration_s=30.0 if gone else 4.0,
                ttft_s=None if gone else 2.0,
                prompt_tokens=2000,
                output_tokens=None if gone else 200,
                tenant="acme" if i % 4 else "globex",
                pool="coder",
            )
        )
    return out


def outputs() -> list[OutputRecord]:
    """1,000 sampled chat answers, two of them degraded."""
    return [
        OutputRecord(
            id=f"o{i}",
            ts=START + 60 + i * 4,
            admitted=START + 50 + i * 4,
            workload_class="chat",
            pool="mixed",
            replica="mixed-0",
            verdict="hard" if i in (100, 900) else "clean",
        )
        for i in range(1000)
    ]


def write(store: Store, *, pool: str = "coder", prefix: str = "coder", model_text: str = "") -> None:
    """The whole history."""
    rows: list[Reading] = []
    for i in range(3):
        rows += readings(
            pool,
            f"{prefix}-{i}",
            edges=VLLM,
            classes=("coding-agent",),
            ttft=2.0,
            stalls=i < 2,
            component="vllm",
        )
    for i in range(2):
        rows += readings(
            "mixed",
            f"mixed-{i}",
            edges=SGLANG,
            classes=("chat", "batch"),
            ttft=0.3,
            stalls=False,
            component="sglang",
        )
    rows.sort(key=lambda r: r.t)
    for i in range(0, len(rows), 500):
        store.append(rows[i : i + 500], stream="backfill")
    store.add_requests(fold(gateway_records(), fine_edges([1.0, 5.0])))
    store.add_outputs(outputs())
    store.add_events([Event(STORM - 1200, "deploy", "release 42" + model_text, pool=pool)])
    store.add_problems(
        [
            Problem(
                STORM, "test", "le_order", f"{prefix}-0:8000", "bucket counts fall" + model_text, "check le"
            )
        ]
    )


def make_live(folder: Path, now: float) -> tuple[History, float]:
    """The fleet's scrapes moved so that the last one is a few seconds old; returns the shift too."""
    url = f"sqlite:///{folder / 'live.db'}"
    shift = float((now - END) // 15 * 15)
    rows = [
        replace(r, t=r.t + shift, start=START - 3600 + shift)
        for i in range(3)
        for r in readings(
            "coder",
            f"coder-{i}",
            edges=VLLM,
            classes=("coding-agent",),
            ttft=2.0,
            stalls=i < 2,
            component="vllm",
        )
    ]
    rows.sort(key=lambda r: r.t)
    with Store.open(url) as store:
        for i in range(0, len(rows), 500):
            store.append(rows[i : i + 500])
    return History(url, config_file(folder, url)), shift


def config_file(folder: Path, url: str) -> Path:
    """The configuration of the history."""
    path = folder / "gustfront.yaml"
    path.write_text(CONFIG.format(database=url))
    return path


def make(folder: Path) -> History:
    """Write the history into a new SQLite file below ``folder``."""
    url = f"sqlite:///{folder / 'history.db'}"
    with Store.open(url) as store:
        write(store)
        store.save_incident(storm())
        store.log_incident("storm-1", STORM + 120, "opened", "page")
    return History(url, config_file(folder, url))


def make_hostile(folder: Path) -> History:
    """The same with names and texts that try to be HTML, Markdown and links."""
    url = f"sqlite:///{folder / 'hostile.db'}"
    with Store.open(url) as store:
        write(store, pool=HOSTILE, prefix=HOSTILE, model_text=HOSTILE)
        store.save_incident(
            storm(
                (f"{HOSTILE}-0", f"{HOSTILE}-1"),
                pools=(HOSTILE,),
                cause=HOSTILE,
                evidence=(Evidence("ttft_seconds", HOSTILE, 2.0, 60.0, None, STORM + 100, "s", HOSTILE),),
                ruled_out=(RuledOut("capacity_shortfall", HOSTILE, HOSTILE),),
            )
        )
        store.log_incident("storm-1", STORM + 120, "opened", HOSTILE, HOSTILE)
    return History(url, config_file(folder, url))


def make_empty(folder: Path) -> History:
    """A database with tables and nothing in them."""
    url = f"sqlite:///{folder / 'empty.db'}"
    Store.open(url).close()
    return History(url, config_file(folder, url))
