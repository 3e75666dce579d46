"""The first schema: a chain of entries, and what it says in columns.

Alembic, a library for changes of schemas, runs `upgrade` when schema.py makes or upgrades a ledger.

These are the tables as they are. Whoever changes them writes them out here first, as they were, and adds a version that brings them on: a
test holds this schema's text.
"""

from alembic import op

from lethe.ledger.tables import METADATA

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    METADATA.create_all(op.get_bind(), checkfirst=False)
