"""Alembic's entry point: runs on the connection that `store` hands over."""

from alembic import context

from rota.daemon.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
