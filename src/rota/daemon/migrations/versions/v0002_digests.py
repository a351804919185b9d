"""What was submitted under an idempotency key."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep a digest."""
    op.add_column("keys", sa.Column("digest", sa.String))


def downgrade() -> None:
    """Keep none."""
    op.drop_column("keys", "digest")
