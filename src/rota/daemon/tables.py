"""The tables of the store. A change here needs a migration in `migrations/versions`."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
)

HEAD = "0006"
"""The newest migration."""

metadata = MetaData()


class Escaped(TypeDecorator[str]):
    """Any text, where there is no place for NUL: it is stored as two characters."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's interface
        """As it is stored."""
        return None if value is None else value.replace("\\", "\\\\").replace("\0", "\\0")

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's interface
        """As it was."""
        if value is None:
            return None
        return "\\".join(part.replace("\\0", "\0") for part in str(value).split("\\\\"))


Count = Integer().with_variant(BigInteger, "postgresql")  # SQLite has only one kind
Words = String().with_variant(Escaped(), "postgresql")

made_by = Table(  # as Alembic makes it
    "alembic_version",
    metadata,
    Column("version_num", String(32), primary_key=True),
)

facts = Table(
    "facts",
    metadata,
    Column("name", Words, primary_key=True),
    Column("value", Words, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("number", Count, primary_key=True, autoincrement=False),
    Column("user", Words, nullable=False),
    Column("submit_s", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("actor", Words, primary_key=True),
    Column("key", Words, primary_key=True),
    Column("first", Count, nullable=False),
    Column("count", Integer, nullable=False),
    Column("digest", Words),  # of what was submitted; null: by a version that did not keep it
)

journal = Table(
    "journal",
    metadata,
    Column("number", Count, primary_key=True, autoincrement=False),
    Column("time_s", Float, nullable=False),
    Column("batch", LargeBinary, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("journal_number", Count, primary_key=True, autoincrement=False),
    Column("state", LargeBinary, nullable=False),
)

log = Table(
    "log",
    metadata,
    Column("number", Count, primary_key=True, autoincrement=False),
    Column("time_s", Float, nullable=False),
    Column("event", Integer, nullable=False),
    Column("job", Count, nullable=False, index=True),
    Column("ref", Count, nullable=False),
    Column("other", Count, nullable=False),
    Column("value", Float, nullable=False),
    Column("text", Words),
)

audit = Table(  # see `rota.daemon.audit`
    "audit",
    metadata,
    Column("number", Count, primary_key=True, autoincrement=False),
    Column("at_unix", Float, nullable=False),
    Column("actor", Words, nullable=False),
    Column("act", Words, nullable=False),
    Column("digest", Words, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", Words, primary_key=True),
    Column("token", Words, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("name", Words, primary_key=True),
    Column("role", Words, nullable=False),
    Column("digest", Words, nullable=False, unique=True),
    Column("made_unix", Float, nullable=False),
    Column("after_job", Count, nullable=False, server_default="0"),  # see `rota.wire.Actor`
    Column("person", Words, nullable=False, server_default=""),  # whose it is; empty: nobody's
    Column("until_unix", Float),  # null: until it is revoked
)

people = Table(
    "people",
    metadata,
    Column("name", Words, primary_key=True),
    Column("subject", Words, unique=True),  # at the identity provider; null: not known there
    Column("body", LargeBinary, nullable=False),  # a `rota.wire.Person`
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", Words, primary_key=True),
    Column("person", Words, nullable=False),
    Column("began_unix", Float, nullable=False),
    Column("until_unix", Float, nullable=False),
)

invitations = Table(  # codes with which machines join, each once
    "invitations",
    metadata,
    Column("digest", Words, primary_key=True),
    Column("node", Words, nullable=False),
    Column("until_unix", Float, nullable=False),
)

members = Table(  # tokens and certificates that are good for one node only
    "members",
    metadata,
    Column("digest", Words, primary_key=True),
    Column("node", Words, nullable=False),
    Column("until_unix", Float),  # null: until it is revoked
)
