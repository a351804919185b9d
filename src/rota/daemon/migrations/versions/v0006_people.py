"""People, whose tokens are, and who log in."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep them."""
    op.add_column("tokens", sa.Column("person", sa.String, nullable=False, server_default=""))
    op.add_column("tokens", sa.Column("until_unix", sa.Float))
    op.create_table(
        "people",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("subject", sa.String, unique=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("person", sa.String, nullable=False),
        sa.Column("began_unix", sa.Float, nullable=False),
        sa.Column("until_unix", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Forget them."""
    for name in ("sessions", "people"):
        op.drop_table(name)
    for column in ("person", "until_unix"):
        op.drop_column("tokens", column)
