"""Alembic migrations; run by :func:`sql.migrate.upgrade`, never by hand."""
