"""Who did what, in a chain."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep it from now on."""
    count = sa.Integer().with_variant(sa.BigInteger, "postgresql")
    op.create_table(
        "audit",
        sa.Column("number", count, primary_key=True, autoincrement=False),
        sa.Column("at_unix", sa.Float, nullable=False),
        sa.Column("actor", sa.String, nullable=False),
        sa.Column("act", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
    )


def downgrade() -> None:
    """Keep none."""
    op.drop_table("audit")
