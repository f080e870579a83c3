"""Outputs chosen to be labelled by people, their labels, and what a model judge said of suspicious outputs."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Tables ``rating_queue``, ``ratings`` and ``judgements``."""
    op.create_table(
        "rating_queue",
        sa.Column("batch", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("stratum_size", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("batch", "output"),
    )
    op.create_table(
        "ratings",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("batch", "output", "rater", "label")),
        sa.Column("ts", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("batch", "output", "rater"),
    )
    op.create_table(
        "judgements",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("output", "judge", "label", "damage")),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("ts", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("output", "judge"),
    )
    op.create_index("ix_judgements_ts", "judgements", ["ts"], unique=False)
