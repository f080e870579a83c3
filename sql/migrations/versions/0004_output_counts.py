"""Sampled outputs counted by what they share, and an index of the bad ones."""

import sqlalchemy as sa
from alembic import op

from sql.output_counts import fill

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table ``output_counts``, filled from what is there."""
    op.create_table(
        "output_counts",
        sa.Column("bin", sa.BigInteger(), autoincrement=False, nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("class", "pool", "replica", "model", "release")
        ),
        *(
            sa.Column(name, sa.Integer(), autoincrement=False, nullable=False)
            for name in ("band", "cache", "structured")
        ),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("weight2", sa.Float(), nullable=False),
        sa.Column("hard", sa.BigInteger(), nullable=False),
        sa.Column("hard_weight", sa.Float(), nullable=False),
        sa.Column("soft", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("aside", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "bin", "class", "pool", "replica", "model", "release", "band", "cache", "structured"
        ),
    )
    bad = sa.text("verdict IN ('hard', 'soft')")
    op.create_index("ix_outputs_bad", "outputs", ["ts"], unique=False, sqlite_where=bad, postgresql_where=bad)
    fill(op.get_bind())
