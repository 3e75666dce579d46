"""The first schema: a chain of entries, and what it says in columns."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")

    def text(name: str, *, unique: bool = False) -> sa.Column[str]:
        return sa.Column(name, sa.Text, nullable=False, unique=unique or None)

    def entry() -> sa.Column[int]:
        return sa.Column("entry", number, sa.ForeignKey("entries.seq"), primary_key=True, autoincrement=False)

    def reservation() -> sa.Column[int]:
        return sa.Column("reservation", number, sa.ForeignKey("reservations.entry"), nullable=False, unique=True)

    def data_set() -> sa.Column[str]:
        return sa.Column("data_set", sa.Text, sa.ForeignKey("data_sets.name"), nullable=False)

    op.create_table(
        "entries",
        sa.Column("seq", number, primary_key=True, autoincrement=False),
        text("kind"),
        text("at"),
        text("data_set"),
        text("counted_cost"),
        text("counted_slack"),
        text("content"),
        text("previous", unique=True),
        text("digest", unique=True),
    )
    op.create_index("ix_entries_data_set_seq", "entries", ["data_set", "seq"])
    op.create_table(
        "data_sets", entry(), text("name", unique=True), text("neighbours"), text("unit"), text("limit_cost"), text("limit_slack")
    )
    op.create_table("spenders", entry(), data_set(), text("name"), sa.UniqueConstraint("data_set", "name"))
    op.create_table("reservations", entry(), data_set(), text("spender"), text("cost"), text("slack"))
    op.create_table("starts", entry(), reservation())
    op.create_table("releases", entry(), reservation(), text("cost"), text("slack"))
    op.create_table(
        "released",
        data_set(),
        text("release"),
        sa.Column("entry", number, sa.ForeignKey("entries.seq"), nullable=False),
        sa.PrimaryKeyConstraint("data_set", "release"),
    )
    op.create_table("corrections", entry(), reservation(), text("reason"))
