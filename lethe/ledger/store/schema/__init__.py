"""The schema's versions: a ledger is made, and brought to the newest version, by Alembic."""
