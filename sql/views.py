"""Views for analysts, described in ``docs/sql.md``. They are no interface of the code: no query of Gustfront reads them.

They are dropped and made anew after each migration, so they always fit the tables. Times are ISO 8601 text in UTC.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

NAMES = (
    "v_rollups",
    "v_buckets",
    "v_latency_minute",
    "v_requests_minute",
    "v_outputs",
    "v_outcomes",
    "v_incidents",
    "v_targets",
    "v_events",
)

_SQLITE = {
    "iso": "strftime('%Y-%m-%dT%H:%M:%SZ', {0}, 'unixepoch')",
    "buckets": "JOIN json_each(r.counts) AS b JOIN edges AS e ON e.id = s.edges_id",
    "bucket": "CAST(b.key AS INTEGER)",
    "count": "CAST(b.value AS INTEGER)",
    "le": "json_extract(e.edges, '$[' || b.key || ']')",
    "sum": "(SELECT COALESCE(SUM(value), 0) FROM json_each({0}))",
    "span": "{0} / 1000.0",
}
_POSTGRES = {
    "iso": "to_char(to_timestamp({0}) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
    "buckets": (
        "CROSS JOIN LATERAL json_array_elements_text(r.counts::json) WITH ORDINALITY AS b(value, key) "
        "JOIN edges AS e ON e.id = s.edges_id"
    ),
    "bucket": "(b.key - 1)::integer",
    "count": "b.value::bigint",
    "le": "(e.edges::json ->> (b.key - 1)::integer)::double precision",
    "sum": "(SELECT COALESCE(SUM(value::bigint), 0) FROM json_each_text({0}::json))",
    "span": "{0} / 1000.0",
}


def statements(dialect: str) -> dict[str, str]:
    """The SELECT of each view for ``sqlite`` or ``postgresql``."""
    w = _SQLITE if dialect == "sqlite" else _POSTGRES

    def iso(column: str) -> str:
        return w["iso"].format(column)

    return {
        "v_rollups": f"""
            SELECT r.resolution, r.ts, {iso("r.ts")} AS time, s.class, s.cluster, s.pool, s.unit, s.model, s.signal, s.kind,
                   s.labels, r.n, r.total, r.max, CASE WHEN r.n > 0 THEN r.total / r.n END AS mean, r.counts, e.edges
            FROM rollups AS r JOIN series AS s ON s.id = r.series_id JOIN edges AS e ON e.id = s.edges_id""",
        "v_buckets": f"""
            SELECT r.resolution, r.ts, {iso("r.ts")} AS time, s.class, s.cluster, s.pool, s.unit, s.model, s.signal, s.labels,
                   s.edges_id, {w["bucket"]} AS bucket, {w["le"]} AS le, {w["count"]} AS count
            FROM rollups AS r JOIN series AS s ON s.id = r.series_id {w["buckets"]}
            WHERE s.kind = 'histogram'""",
        "v_latency_minute": """
            SELECT ts, time, class, cluster, pool, model, signal, edges_id, MAX(n) AS n,
                   MIN(CASE WHEN up_to >= 0.50 * n THEN COALESCE(le, 9e999) END) AS p50_at_most,
                   MIN(CASE WHEN up_to >= 0.90 * n THEN COALESCE(le, 9e999) END) AS p90_at_most,
                   MIN(CASE WHEN up_to >= 0.99 * n THEN COALESCE(le, 9e999) END) AS p99_at_most
            FROM (
                SELECT ts, time, class, cluster, pool, model, signal, edges_id, le,
                       SUM(count) OVER (PARTITION BY ts, class, cluster, pool, model, signal, labels, edges_id
                                        ORDER BY bucket) AS up_to,
                       SUM(count) OVER (PARTITION BY ts, class, cluster, pool, model, signal, labels, edges_id) AS n
                FROM v_buckets WHERE resolution = 60 AND unit = ''
            ) AS cumulative
            WHERE n > 0
            GROUP BY ts, time, class, cluster, pool, model, signal, edges_id""".replace(
            "9e999", "9e999" if dialect == "sqlite" else "'Infinity'::double precision"
        ),
        "v_requests_minute": f"""
            SELECT minute AS ts, {iso("minute")} AS time, point, class, tenant, model, pool, band AS prompt_band, status,
                   release, n, prompt_tokens, output_tokens, {w["sum"].format("ttft")} AS n_ttft,
                   ttft_sum AS ttft_seconds_sum, {w["sum"].format("age")} AS n_without_first_token,
                   {w["sum"].format("duration")} AS n_duration, duration_sum AS duration_seconds_sum
            FROM requests""",
        "v_outputs": f"""
            SELECT id, ts, {iso("ts")} AS time, {iso("admitted")} AS admitted_time, class, pool, replica, model, release, tenant,
                   session, turn, prompt_tokens, output_tokens, cached_tokens, ttft_s, e2e_s, queue_s, accept_length,
                   finish_reason, verdict, rules, features, random, weight, structured, language, cache_source, source
            FROM outputs""",
        "v_outcomes": f"""
            SELECT y.id, y.ts, {iso("y.ts")} AS time, y.kind, y.ok, y.value, y.request, y.session, y.source,
                   o.class, o.pool, o.replica, o.model, o.release, o.tenant, o.turn, o.verdict, o.rules, o.random, o.weight
            FROM outcomes AS y LEFT JOIN outputs AS o ON o.id = y.request AND y.request <> ''""",
        "v_incidents": f"""
            SELECT id, kind, severity, state, title, {iso("started_at")} AS started, {iso("announced_at")} AS announced,
                   {iso("detected_at")} AS detected, {iso("diagnosed_at")} AS diagnosed, {iso("ended_at")} AS ended,
                   ended_at - started_at AS seconds, detected_at - started_at AS seconds_to_detect, classes, pools, replicas,
                   load_correlated, cause, confidence, runner_up
            FROM incidents""",
        "v_targets": f"""
            SELECT t.id, t.cluster, t.pool, t.replica, t.rank, u.owner, t.address, t.components, t.version, t.model, t.role,
                   t.release, t.source, t.up, {iso("t.first_seen_ms / 1000")} AS first_seen,
                   {iso("t.last_seen_ms / 1000")} AS last_seen
            FROM targets AS t JOIN units AS u ON u.id = t.unit_id""",
        "v_events": f"SELECT ts, {iso('ts')} AS time, kind, text, pool, replica, source, data FROM events",
    }


def create_views(connection: Connection) -> None:
    """Drop and create all views."""
    made = statements(connection.dialect.name)
    for name in reversed(NAMES):
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))
    for name in NAMES:
        # the driver, not text(): a colon in the SQL is no parameter
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {made[name]}".replace("%", _percent(connection)))


def _percent(connection: Connection) -> str:
    return "%" if connection.dialect.name == "sqlite" else "%%"
