"""Which token speaks for which node."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Remember it."""
    op.create_table(
        "nodes",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("token", sa.String, nullable=False),
    )


def downgrade() -> None:
    """Forget it."""
    op.drop_table("nodes")
