"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make everything."""
    op.create_table(
        "facts",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.String, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("submit_s", sa.Float, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("actor", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("first", sa.Integer, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
    )
    op.create_table(
        "journal",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("batch", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("journal_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "log",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("event", sa.Integer, nullable=False),
        sa.Column("job", sa.Integer, nullable=False, index=True),
        sa.Column("ref", sa.Integer, nullable=False),
        sa.Column("other", sa.Integer, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("text", sa.String),
    )
    op.create_table(
        "tokens",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False, unique=True),
        sa.Column("made_unix", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Remove everything."""
    for name in ("tokens", "log", "snapshots", "journal", "keys", "jobs", "facts"):
        op.drop_table(name)
