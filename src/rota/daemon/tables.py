"""The tables of the store. A change here needs a migration in `migrations/versions`."""

from sqlalchemy import (
    Column,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

HEAD = "0003"
"""The newest migration."""

metadata = MetaData()

made_by = Table(  # as Alembic makes it
    "alembic_version",
    metadata,
    Column("version_num", String(32), primary_key=True),
)

facts = Table(
    "facts",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("user", String, nullable=False),
    Column("submit_s", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("actor", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("first", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("digest", String),  # of what was submitted; null: by a version that did not keep it
)

journal = Table(
    "journal",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time_s", Float, nullable=False),
    Column("batch", LargeBinary, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("journal_number", Integer, primary_key=True, autoincrement=False),
    Column("state", LargeBinary, nullable=False),
)

log = Table(
    "log",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time_s", Float, nullable=False),
    Column("event", Integer, nullable=False),
    Column("job", Integer, nullable=False, index=True),
    Column("ref", Integer, nullable=False),
    Column("other", Integer, nullable=False),
    Column("value", Float, nullable=False),
    Column("text", String),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String, primary_key=True),
    Column("token", String, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("name", String, primary_key=True),
    Column("role", String, nullable=False),
    Column("digest", String, nullable=False, unique=True),
    Column("made_unix", Float, nullable=False),
)
