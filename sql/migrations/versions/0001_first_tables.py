"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "baselines",
        sa.Column("detector", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("as_of", sa.Float(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("detector", "scope", "as_of"),
    )
    op.create_table(
        "cursors",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "detector_state",
        sa.Column("detector", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("detector"),
    )
    op.create_table(
        "edges",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("edges", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("ts", sa.Float(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.Column("pool", sa.Text(), server_default="", nullable=False),
        sa.Column("replica", sa.Text(), server_default="", nullable=False),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("data", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_events_ts", "events", ["ts"], unique=False)
    op.create_table(
        "incident_log",
        sa.Column("incident_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.Float(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("incident_id", "seq"),
    )
    op.create_table(
        "incidents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("detected_at", sa.Float(), nullable=True),
        sa.Column("announced_at", sa.Float(), nullable=True),
        sa.Column("diagnosed_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("classes", sa.Text(), nullable=False),
        sa.Column("pools", sa.Text(), nullable=False),
        sa.Column("replicas", sa.Text(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("load_correlated", sa.Boolean(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("runner_up", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("ruled_out", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_incidents_started", "incidents", ["started_at"], unique=False)
    op.create_table(
        "layouts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "outputs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("ts", sa.Float(), nullable=False),
        sa.Column("admitted", sa.Float(), nullable=False),
        sa.Column("class", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), server_default="", nullable=False),
        sa.Column("replica", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("release", sa.Text(), server_default="", nullable=False),
        sa.Column("tenant", sa.Text(), server_default="", nullable=False),
        sa.Column("session", sa.Text(), server_default="", nullable=False),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("ttft_s", sa.Float(), nullable=True),
        sa.Column("e2e_s", sa.Float(), nullable=True),
        sa.Column("queue_s", sa.Float(), nullable=True),
        sa.Column("accept_length", sa.Float(), nullable=True),
        sa.Column("finish_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("rules", sa.Text(), server_default="{}", nullable=False),
        sa.Column("features", sa.Text(), server_default="{}", nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_outputs_ts", "outputs", ["ts"], unique=False)
    op.create_table(
        "problems",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("first_ts", sa.Float(), nullable=False),
        sa.Column("last_ts", sa.Float(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("fix", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("source", "code", "subject"),
    )
    op.create_table(
        "units",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("rank", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "requests",
        sa.Column("minute", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("point", sa.Text(), nullable=False),
        sa.Column("class", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("band", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("release", sa.Text(), nullable=False),
        sa.Column("edges_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("ttft_sum", sa.Float(), nullable=False),
        sa.Column("duration_sum", sa.Float(), nullable=False),
        sa.Column("ttft", sa.Text(), nullable=False),
        sa.Column("age", sa.Text(), nullable=False),
        sa.Column("duration", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["edges_id"],
            ["edges.id"],
        ),
        sa.PrimaryKeyConstraint(
            "minute", "point", "class", "tenant", "model", "pool", "band", "status", "release", "edges_id"
        ),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("signal", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("class", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("edges_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["edges_id"],
            ["edges.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_series_signal", "series", ["signal"], unique=False)
    op.create_table(
        "targets",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("unit_id", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("rank", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("job", sa.Text(), server_default="", nullable=False),
        sa.Column("components", sa.Text(), server_default="[]", nullable=False),
        sa.Column("version", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("role", sa.Text(), server_default="", nullable=False),
        sa.Column("release", sa.Text(), server_default="", nullable=False),
        sa.Column("gpu_host", sa.Text(), server_default="", nullable=False),
        sa.Column("labels", sa.Text(), server_default="{}", nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.Column("process_start", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["unit_id"],
            ["units.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "frames",
        sa.Column("target_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("t1_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("span_ms", sa.Integer(), nullable=False),
        sa.Column("layout_id", sa.Text(), nullable=False),
        sa.Column("reset", sa.SmallInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["layout_id"],
            ["layouts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["targets.id"],
        ),
        sa.PrimaryKeyConstraint("target_id", "t1_ms"),
    )
    op.create_table(
        "rollups",
        sa.Column("series_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("resolution", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        sa.Column("max", sa.Float(), nullable=True),
        sa.Column("counts", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["series.id"],
        ),
        sa.PrimaryKeyConstraint("series_id", "resolution", "ts"),
        postgresql_with={"fillfactor": "50"},
        sqlite_with_rowid=False,
    )
    op.create_table(
        "scrape_failures",
        sa.Column("target_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("t_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["targets.id"],
        ),
        sa.PrimaryKeyConstraint("target_id", "t_ms"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "target_state",
        sa.Column("target_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("t_ms", sa.BigInteger(), nullable=False),
        sa.Column("process_start", sa.Float(), nullable=True),
        sa.Column("layout_id", sa.Text(), nullable=False),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["layout_id"],
            ["layouts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["targets.id"],
        ),
        sa.PrimaryKeyConstraint("target_id", "stream"),
        postgresql_with={"fillfactor": "50"},
    )
    if op.get_bind().dialect.name == "postgresql":
        # packed already: PostgreSQL need not try again at each scrape
        op.execute("ALTER TABLE target_state ALTER COLUMN data SET STORAGE EXTERNAL")
        op.execute("ALTER TABLE frames ALTER COLUMN data SET STORAGE EXTERNAL")
