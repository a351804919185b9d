"""Machines that join, and names that were given again."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep them."""
    op.add_column("tokens", sa.Column("after_job", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "invitations",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("until_unix", sa.Float, nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("until_unix", sa.Float),
    )


def downgrade() -> None:
    """Forget them."""
    for name in ("members", "invitations"):
        op.drop_table(name)
    op.drop_column("tokens", "after_job")
