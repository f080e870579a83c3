"""The analysts' views answer in plain SQL, on both dialects, what the store's own methods answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sqlalchemy import text

from core.incidents import Incident
from core.records import Event, OutputRecord, RequestRecord
from core.requests import fine_edges, fold
from sql import views
from sql.store import Store
from tests.sql.make import DONE, EDGES, RUNNING, T0, TTFT, reading, target

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sql.md"


def ask(store: Store, query: str) -> list[dict[str, Any]]:
    with store.database.read() as c:
        return [dict(r) for r in c.execute(text(query)).mappings()]


def fill(store: Store) -> None:
    store.append(
        [
            reading(15.0 * i, {TTFT: ((10 * i, 5 * i, 0, i), 9.0 * i), DONE: i, RUNNING: i}, of=target(r))
            for i in range(5)
            for r in ("a", "b")
        ]
    )
    store.add_requests(
        fold([RequestRecord(T0 + i, 200, "chat", 2.0, 0.5, 10, 20) for i in range(30)], fine_edges())
    )
    store.add_outputs([OutputRecord("o", T0 + 4, T0, "chat", verdict="hard", text="secret")])
    store.save_incident(Incident("i", "wedged", "page", "open", "x", T0, detected_at=T0 + 60, pools=("p",)))
    store.add_events([Event(T0, "deploy", "v2")])


def test_rollups_and_buckets_can_be_summed_in_sql(store: Store) -> None:
    fill(store)
    rows = ask(
        store,
        "SELECT le, SUM(count) AS n FROM v_buckets WHERE signal = 'ttft_seconds' AND resolution = 60 AND unit = '' "
        "GROUP BY le, bucket ORDER BY bucket",
    )
    assert [(r["le"], int(r["n"])) for r in rows] == [*zip(EDGES, (80, 40, 0), strict=True), (None, 8)]
    (mean,) = ask(
        store,
        "SELECT SUM(total) / SUM(n) AS mean FROM v_rollups WHERE signal = 'ttft_seconds' AND resolution = 3600",
    )
    assert float(mean["mean"]) == 72.0 / 128
    units = ask(store, "SELECT DISTINCT unit FROM v_rollups WHERE resolution = 300 ORDER BY unit")
    assert [u["unit"] for u in units] == ["a", "b"]


def test_latency_of_a_minute_is_an_upper_bucket_edge(store: Store) -> None:
    fill(store)
    row, later = ask(store, "SELECT * FROM v_latency_minute WHERE signal = 'ttft_seconds' ORDER BY ts")
    assert row["time"] == "2026-09-21T14:14:00Z"
    assert (int(row["n"]), row["p50_at_most"], row["p90_at_most"]) == (96, 0.5, 1.0)
    assert row["p99_at_most"] == float("inf")
    assert int(later["n"]) == 32


def test_requests_outputs_incidents_targets_and_events_have_views(store: Store) -> None:
    fill(store)
    (r,) = ask(store, "SELECT SUM(n) AS n, SUM(n_ttft) AS t, SUM(n_duration) AS d FROM v_requests_minute")
    assert (int(r["n"]), int(r["t"]), int(r["d"])) == (30, 30, 30)
    (o,) = ask(store, "SELECT * FROM v_outputs")
    assert (o["verdict"], o["time"]) == ("hard", "2026-09-21T14:14:04Z")
    assert "text" not in o
    (i,) = ask(store, "SELECT * FROM v_incidents")
    assert (i["seconds_to_detect"], i["ended"]) == (60, None)
    assert [t["replica"] for t in ask(store, "SELECT * FROM v_targets ORDER BY replica")] == ["a", "b"]
    assert [e["kind"] for e in ask(store, "SELECT * FROM v_events")] == ["deploy"]


def test_every_view_and_column_is_described(store: Store) -> None:
    described = DOCS.read_text()
    for name in views.NAMES:
        part = re.search(rf"^### `{name}`$(.*?)(?=^##|\Z)", described, re.M | re.S)
        assert part, f"{name} is not in docs/sql.md"
        with store.database.read() as c:
            columns = list(c.execute(text(f"SELECT * FROM {name}")).keys())
        missing = [x for x in columns if f"`{x}`" not in part.group(1)]
        assert not missing, f"{name}: {missing} not described in docs/sql.md"


def test_the_queries_in_the_documentation_run(store: Store) -> None:
    fill(store)
    queries = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.S)
    assert len(queries) >= 4
    for query in queries:
        assert ask(store, query), query
