"""What Alembic runs: the versions, in the transaction that is open already."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
