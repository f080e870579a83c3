"""What objectives need: more counts of each gateway cell, cells by the hour, exclusions, versions and frozen months."""

import sqlalchemy as sa
from alembic import op

from sql.request_hours import fill

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """New columns of ``requests``, its sums by the hour (filled from what is there), and three tables."""
    op.add_column("requests", sa.Column("tpot", sa.Text(), nullable=True))
    op.add_column("requests", sa.Column("joint", sa.Text(), server_default="{}", nullable=False))
    op.create_table(
        "request_hours",
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("point", "class", "tenant", "model", "pool", "band")
        ),
        sa.Column("status", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("release", sa.Text(), nullable=False),
        sa.Column("edges_id", sa.BigInteger(), autoincrement=False, nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("n", "prompt_tokens", "output_tokens")
        ),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("ttft_sum", "duration_sum")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("ttft", "age", "duration")),
        sa.Column("tpot", sa.Text(), nullable=True),
        sa.Column("joint", sa.Text(), server_default="{}", nullable=False),
        sa.ForeignKeyConstraint(["edges_id"], ["edges.id"]),
        sa.PrimaryKeyConstraint(
            "hour", "point", "class", "tenant", "model", "pool", "band", "status", "release", "edges_id"
        ),
    )
    op.create_table(
        "exclusions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("start_ts", sa.Float(), nullable=False),
        sa.Column("end_ts", sa.Float(), nullable=False),
        *(
            sa.Column(name, sa.Text(), server_default="", nullable=False)
            for name in ("class", "pool", "slo", "withdrawn_by")
        ),
        sa.Column("withdrawn_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_exclusions_start", "exclusions", ["start_ts"], unique=False)
    op.create_table(
        "slo_versions",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("slo", "version"),
    )
    op.create_table(
        "slo_months",
        sa.Column("slo", sa.Text(), nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("slo", "month", "seq"),
    )
    fill(op.get_bind())
