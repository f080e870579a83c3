"""Alembic's environment: migrates on the connection, and in the transaction, that ``sql.migrate`` hands over."""

from alembic import context

from sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,
    render_as_batch=True,
)
context.run_migrations()
