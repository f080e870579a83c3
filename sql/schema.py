"""The tables. No sequences, no reflection: every key is natural or a hash (see :mod:`sql.ids`).

``*_ms`` columns are whole milliseconds of Unix time, other times Unix seconds. JSON columns hold plain JSON text, so that
``json_each`` (SQLite) and ``json_array_elements`` (PostgreSQL) read them. The analysts' views are in :mod:`sql.views`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
    true,
)

metadata = MetaData()


_UPDATED: dict[str, Any] = {"postgresql_with": {"fillfactor": "50"}}
"""Rows that each scrape updates: PostgreSQL keeps their new versions on the same page, where it cleans up by itself."""


def _key(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


units = Table(
    "units",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("replica", Text, nullable=False),
    Column("rank", Text, nullable=False),
    _text("owner"),
)

targets = Table(
    "targets",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("unit_id", BigInteger, ForeignKey("units.id"), nullable=False),
    Column("address", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("replica", Text, nullable=False),
    Column("rank", Text, nullable=False),
    _text("source"),
    _text("job"),
    Column("components", Text, nullable=False, server_default="[]"),
    _text("version"),
    _text("model"),
    _text("role"),
    _text("release"),
    _text("gpu_host"),
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger, nullable=False),
    Column("up", Boolean, nullable=False),
    Column("process_start", Float),
    **_UPDATED,
)

layouts = Table("layouts", metadata, _key("id"), Column("columns", Text, nullable=False))

target_state = Table(
    "target_state",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True, autoincrement=False),
    _key("stream"),
    Column("t_ms", BigInteger, nullable=False),
    Column("process_start", Float),
    Column("layout_id", Text, ForeignKey("layouts.id"), nullable=False),
    Column("sources", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    **_UPDATED,
)

frames = Table(
    "frames",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True, autoincrement=False),
    Column("t1_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("span_ms", Integer, nullable=False),
    Column("layout_id", Text, ForeignKey("layouts.id"), nullable=False),
    Column("reset", SmallInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

scrape_failures = Table(
    "scrape_failures",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True, autoincrement=False),
    Column("t_ms", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

edges = Table(
    "edges",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("edges", Text, nullable=False),
)

series = Table(
    "series",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("signal", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("class", Text, nullable=False, key="class_"),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("edges_id", BigInteger, ForeignKey("edges.id"), nullable=False),
    Index("ix_series_signal", "signal"),
)

rollups = Table(
    "rollups",
    metadata,
    Column("series_id", BigInteger, ForeignKey("series.id"), primary_key=True, autoincrement=False),
    Column("resolution", Integer, primary_key=True, autoincrement=False),
    Column("ts", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),
    Column("total", Float, nullable=False),
    Column("max", Float, key="max_"),
    Column("counts", Text),
    # narrow rows, read in runs of one series: clustered by key it takes half the space and a third of the time
    sqlite_with_rowid=False,
    **_UPDATED,
)

requests = Table(
    "requests",
    metadata,
    Column("minute", BigInteger, primary_key=True, autoincrement=False),
    _key("point"),
    Column("class", Text, primary_key=True, key="class_"),
    _key("tenant"),
    _key("model"),
    _key("pool"),
    _key("band"),
    Column("status", Integer, primary_key=True, autoincrement=False),
    _key("release"),
    Column("edges_id", BigInteger, ForeignKey("edges.id"), primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("ttft_sum", Float, nullable=False),
    Column("duration_sum", Float, nullable=False),
    # fine buckets, nearly all empty: JSON objects {bucket: count}, bucket 0 first, the overflow last
    Column("ttft", Text, nullable=False),
    Column("age", Text, nullable=False),
    Column("duration", Text, nullable=False),
    # null: not counted when it came in
    Column("tpot", Text),
    # {thresholds: [requests that kept all of them, requests of which nobody knows]}
    Column("joint", Text, nullable=False, server_default="{}"),
)

request_hours = Table(
    "request_hours",
    metadata,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    _key("point"),
    Column("class", Text, primary_key=True, key="class_"),
    _key("tenant"),
    _key("model"),
    _key("pool"),
    _key("band"),
    Column("status", Integer, primary_key=True, autoincrement=False),
    _key("release"),
    Column("edges_id", BigInteger, ForeignKey("edges.id"), primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("ttft_sum", Float, nullable=False),
    Column("duration_sum", Float, nullable=False),
    Column("ttft", Text, nullable=False),
    Column("age", Text, nullable=False),
    Column("duration", Text, nullable=False),
    Column("tpot", Text),
    Column("joint", Text, nullable=False, server_default="{}"),
)

exclusions = Table(
    "exclusions",
    metadata,
    _key("id"),
    Column("made_at", Float, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("start_ts", Float, nullable=False),
    Column("end_ts", Float, nullable=False),
    Column("class", Text, nullable=False, server_default="", key="class_"),
    _text("pool"),
    _text("slo"),
    _text("withdrawn_by"),
    Column("withdrawn_at", Float),
    Index("ix_exclusions_start", "start_ts"),
)

slo_versions = Table(
    "slo_versions",
    metadata,
    _key("slo"),
    _key("version"),
    Column("since", Float, nullable=False),
    Column("definition", Text, nullable=False),
)

slo_months = Table(
    "slo_months",
    metadata,
    _key("slo"),
    _key("month"),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("version", Text, nullable=False),
    Column("made_at", Float, nullable=False),
    _text("reason"),
    Column("data", Text, nullable=False),
)

outputs = Table(
    "outputs",
    metadata,
    _key("id"),
    Column("ts", Float, nullable=False),
    Column("admitted", Float, nullable=False),
    Column("class", Text, nullable=False, key="class_"),
    _text("pool"),
    _text("replica"),
    _text("model"),
    _text("release"),
    _text("tenant"),
    _text("session"),
    Column("turn", Integer),
    Column("prompt_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("ttft_s", Float),
    Column("e2e_s", Float),
    Column("queue_s", Float),
    Column("accept_length", Float),
    _text("finish_reason"),
    Column("verdict", Text, nullable=False),
    Column("rules", Text, nullable=False, server_default="{}"),
    Column("features", Text, nullable=False, server_default="{}"),
    Column("text", Text),
    # part of the unbiased sample, and how many requests it stands for; what was kept only because it is suspicious is not
    Column("random", Boolean, nullable=False, server_default=true()),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("structured", Boolean),
    _text("language"),
    _text("cache_source"),
    _text("source"),
    Index("ix_outputs_ts", "ts"),
    Index("ix_outputs_session", "session"),
    Index(
        "ix_outputs_bad",
        "ts",
        sqlite_where=text("verdict IN ('hard', 'soft')"),
        postgresql_where=text("verdict IN ('hard', 'soft')"),
    ),
)

output_counts = Table(
    "output_counts",
    metadata,
    # five minutes of admission; the codes are those of sql.output_counts
    Column("bin", BigInteger, primary_key=True, autoincrement=False),
    Column("class", Text, primary_key=True, key="class_"),
    _key("pool"),
    _key("replica"),
    _key("model"),
    _key("release"),
    Column("band", Integer, primary_key=True, autoincrement=False),
    Column("cache", Integer, primary_key=True, autoincrement=False),
    Column("structured", Integer, primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),
    Column("weight", Float, nullable=False),
    Column("weight2", Float, nullable=False),
    Column("hard", BigInteger, nullable=False),
    Column("hard_weight", Float, nullable=False),
    Column("soft", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("aside", BigInteger, nullable=False),
)

outcomes = Table(
    "outcomes",
    metadata,
    _key("id"),
    Column("ts", Float, nullable=False),
    _text("request"),
    _text("session"),
    Column("kind", Text, nullable=False),
    Column("ok", Boolean, nullable=False),
    Column("value", Float),
    _text("source"),
    Index("ix_outcomes_ts", "ts"),
    Index("ix_outcomes_request", "request"),
    Index("ix_outcomes_session", "session"),
)

baselines = Table(
    "baselines",
    metadata,
    _key("detector"),
    _key("scope"),
    Column("as_of", Float, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

detector_state = Table(
    "detector_state",
    metadata,
    _key("detector"),
    Column("data", LargeBinary, nullable=False),
)

incidents = Table(
    "incidents",
    metadata,
    _key("id"),
    Column("kind", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("detected_at", Float),
    Column("announced_at", Float),
    Column("diagnosed_at", Float),
    Column("ended_at", Float),
    Column("updated_at", Float, nullable=False),
    Column("classes", Text, nullable=False),
    Column("pools", Text, nullable=False),
    Column("replicas", Text, nullable=False),
    Column("ranks", Text, nullable=False),
    Column("load_correlated", Boolean),
    Column("cause", Text, nullable=False),
    Column("confidence", Float, nullable=False),
    Column("runner_up", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("ruled_out", Text, nullable=False),
    Column("detail", Text, nullable=False),
    # set by people, never by a detector: see sql.incidents.hold_open
    Column("held_open_at", Float),
    Index("ix_incidents_started", "started_at"),
)

incident_log = Table(
    "incident_log",
    metadata,
    _key("incident_id"),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("ts", Float, nullable=False),
    Column("action", Text, nullable=False),
    _text("text"),
    _text("who"),
    Column("data", Text, nullable=False, server_default="{}"),
)

silences = Table(
    "silences",
    metadata,
    _key("id"),
    Column("made_at", Float, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("matchers", Text, nullable=False),
    Column("starts_at", Float, nullable=False),
    Column("ends_at", Float, nullable=False),
    _text("withdrawn_by"),
    Column("withdrawn_at", Float),
    Index("ix_silences_ends", "ends_at"),
)

mutes = Table(
    "mutes",
    metadata,
    _key("id"),
    Column("made_at", Float, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("matchers", Text, nullable=False),
    Column("days", Text, nullable=False),
    Column("start_clock", Text, nullable=False),
    Column("end_clock", Text, nullable=False),
    Column("zone", Text, nullable=False),
    _text("withdrawn_by"),
    Column("withdrawn_at", Float),
)

deliveries = Table(
    "deliveries",
    metadata,
    _key("id"),
    Column("receiver", Text, nullable=False),
    # an incident's id, event:… or test:…
    Column("subject", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("action", Text, nullable=False),
    Column("state", Text, nullable=False),
    # what goes out together: the pools
    Column("place", Text, nullable=False),
    Column("made_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    # when due_at was set: a clock that shows less has been put back
    Column("set_at", Float, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("sent_at", Float),
    _text("batch"),
    _text("reference"),
    _text("error"),
    _text("reason"),
    Column("face", Text, nullable=False, server_default="{}"),
    Column("message", Text, nullable=False, server_default="{}"),
    Index("ix_deliveries_subject", "subject", "receiver", "seq", unique=True),
    Index("ix_deliveries_state", "state", "receiver"),
    Index("ix_deliveries_made", "made_at"),
    Index("ix_deliveries_sent", "receiver", "sent_at"),
    **_UPDATED,
)

leases = Table(
    "leases",
    metadata,
    _key("name"),
    Column("holder", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("taken_at", Float, nullable=False),
    Column("until", Float, nullable=False),
)

events = Table(
    "events",
    metadata,
    _key("id"),
    Column("ts", Float, nullable=False),
    Column("kind", Text, nullable=False),
    _text("text"),
    _text("pool"),
    _text("replica"),
    _text("source"),
    Column("data", Text, nullable=False, server_default="{}"),
    Index("ix_events_ts", "ts"),
)

problems = Table(
    "problems",
    metadata,
    _key("source"),
    _key("code"),
    _key("subject"),
    Column("first_ts", Float, nullable=False),
    Column("last_ts", Float, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("message", Text, nullable=False),
    _text("fix"),
)

cursors = Table("cursors", metadata, _key("name"), Column("value", Text, nullable=False))

tokens = Table(
    "tokens",
    metadata,
    _key("id"),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("made_at", Float, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("last_used_at", Float),
    _text("revoked_by"),
    _text("last_used_from"),
)

rating_queue = Table(
    "rating_queue",
    metadata,
    _key("batch"),
    _key("output"),
    # hard, soft or clean, and of how many outputs of that kind it was drawn
    Column("stratum", Text, nullable=False),
    Column("stratum_size", BigInteger, nullable=False),
    Column("place", Integer, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("rules", Text, nullable=False),
    Column("made_at", Float, nullable=False),
)

ratings = Table(
    "ratings",
    metadata,
    _key("batch"),
    _key("output"),
    _key("rater"),
    Column("label", Text, nullable=False),
    Column("ts", Float, nullable=False),
)

judgements = Table(
    "judgements",
    metadata,
    _key("output"),
    _key("judge"),
    Column("label", Text, nullable=False),
    Column("damage", Text, nullable=False),
    Column("confidence", Float),
    Column("tokens", BigInteger, nullable=False),
    Column("ts", Float, nullable=False),
    Index("ix_judgements_ts", "ts"),
)

audit = Table(
    "audit",
    metadata,
    _key("id"),
    Column("ts", Float, nullable=False),
    Column("who", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("allowed", Boolean, nullable=False),
    Column("detail", Text, nullable=False, server_default="{}"),
    Index("ix_audit_ts", "ts"),
)
"""Triggers of migration 0007 refuse to change or delete a line."""
