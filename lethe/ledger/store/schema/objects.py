"""The objects of a ledger's schema, by name: what a database holds beside them is nobody's of the ledger, and may change what it writes."""

from __future__ import annotations

from sqlalchemy import Connection, PrimaryKeyConstraint, UniqueConstraint, text

from lethe.ledger.store.tables import METADATA

_VERSION = "alembic_version"
# Names that begin with sqlite_ are SQLite's own, and refused to everybody else.
_IN_SQLITE = (
    "SELECT type AS kind, name FROM sqlite_master WHERE substr(name, 1, 7) <> 'sqlite_'",
    "SELECT 'column' AS kind, t.name || '.' || c.name AS name FROM sqlite_master t, pragma_table_xinfo(t.name) c WHERE t.type = 'table'",
)
# What an extension brings belongs to it; that a trigger or a rule does nothing harmful cannot be told by its name.
_IN_POSTGRES = """
WITH ledger AS (SELECT relnamespace AS schema FROM pg_class WHERE oid = 'entries'::regclass),
     objects AS (
       SELECT c.oid, c.relkind, c.relname FROM pg_class c, ledger
        WHERE c.relnamespace = ledger.schema
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))
SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'S' THEN 'sequence'
            ELSE 'object' END AS kind, relname AS name FROM objects
UNION ALL
SELECT 'column', o.relname || '.' || a.attname FROM objects o JOIN pg_attribute a ON a.attrelid = o.oid
 WHERE o.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'trigger', t.tgname FROM pg_trigger t JOIN objects o ON o.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL
SELECT 'rule', r.rulename FROM pg_rewrite r JOIN objects o ON o.oid = r.ev_class WHERE o.relkind = 'r'
"""


def difference(connection: Connection) -> str:
    """What the schema has beside the ledger's tables, columns and indices, or lacks of them; empty: nothing.

    Looked at are tables, columns, indices, views and triggers, of PostgreSQL sequences and rules as well, by name; not who may use them,
    row-level policies, defaults, or functions.
    """
    postgres = connection.dialect.name == "postgresql"
    queries, expected = (_IN_POSTGRES,) if postgres else _IN_SQLITE, _expected(constraints=postgres)
    found = {(row.kind, row.name) for query in queries for row in connection.execute(text(query))}
    both = {name for kind, name in found & expected if kind == "table"}
    named = [f"there is the {kind} {name}" for kind, name in sorted(found - expected) if kind != "column" or name.partition(".")[0] in both]
    named += [f"the {kind} {name} is missing" for kind, name in sorted(expected - found)]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def _expected(*, constraints: bool) -> set[tuple[str, str]]:
    """The kinds and names of this version's objects.

    Args:
        constraints: whether keys are indices with names of their own, as in PostgreSQL.
    """
    expected = {("table", _VERSION), ("column", f"{_VERSION}.version_num")}
    for table in METADATA.tables.values():
        expected |= {("table", table.name)} | {("column", f"{table.name}.{column.name}") for column in table.columns}
        expected |= {("index", str(index.name)) for index in table.indexes}
        for constraint in table.constraints if constraints else ():
            if isinstance(constraint, PrimaryKeyConstraint):
                expected.add(("index", f"{table.name}_pkey"))
            elif isinstance(constraint, UniqueConstraint):
                expected.add(("index", "_".join([table.name, *constraint.columns.keys(), "key"])))
    return expected | ({("index", f"{_VERSION}_pkc")} if constraints else set())
