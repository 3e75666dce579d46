"""Versions of the ledger's database schema, made and upgraded by Alembic; and whatever in the database is not the ledger's.

`Ledger.open` calls it; reading.py's `verify` asks for differences, such as a trigger or table that somebody added.
"""

from functools import cache
from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, PrimaryKeyConstraint, UniqueConstraint, inspect, text

from lethe.errors import InputError, LedgerError
from lethe.ledger.tables import METADATA

_FOLDERS = [str(Path(__file__).parent / "versions")]
_TABLE = "alembic_version"
_SOURCE = "the place of the ledger"


@cache
def _versions() -> ScriptDirectory:
    return ScriptDirectory(_FOLDERS[0], version_locations=_FOLDERS)


def _is_known_version(version: str) -> bool:
    return version in {script.revision for script in _versions().walk_revisions()}


def make_or_upgrade(connection: Connection) -> None:
    """Make the tables in an empty database, or bring those of an older ledger to this version; all in the present transaction."""
    names = set(inspect(connection).get_table_names())
    if names and _TABLE not in names:
        raise InputError(
            f"the database holds tables that are no ledger's: {', '.join(sorted(names)[:4])}.",
            source=_SOURCE,
            remedy="give a database of its own.",
        )
    if names and not _is_known_version(_version(connection)):
        require_newest(connection)
    steps = EnvironmentContext(Config(), _versions(), fn=lambda version, _: _versions()._upgrade_revs("head", version))  # pyright: ignore[reportArgumentType]
    with steps:
        steps.configure(connection=connection)
        steps.run_migrations()


def require_newest(connection: Connection) -> None:
    """Refuse a database that is no ledger of this version."""
    if _TABLE not in inspect(connection).get_table_names():
        raise InputError("the database is no ledger.", source=_SOURCE, remedy="make one: `lethe ledger create`, or make=True.")
    version, newest = _version(connection), str(_versions().get_current_head())
    if version == newest:
        return
    reason, remedy = "; this Lethe writes", "open it once with make=True, which brings it to this version; keep a copy."
    if not _is_known_version(version):
        reason, remedy = ", which this Lethe does not know; it knows", "install the version of Lethe that wrote it, or a newer one."
    raise LedgerError(f"the ledger's schema is of version {version}{reason} {newest}.", source=_TABLE, remedy=remedy)


def _version(connection: Connection) -> str:
    versions = connection.execute(text(f"SELECT version_num FROM {_TABLE}")).scalars().all()
    return versions[0] if len(versions) == 1 else "unknown"


# Names that begin with sqlite_ are SQLite's own, and refused to everybody else.
_IN_SQLITE = """
SELECT type AS kind, name FROM sqlite_master WHERE substr(name, 1, 7) <> 'sqlite_'
UNION ALL
SELECT 'column', t.name || '.' || c.name FROM sqlite_master t, pragma_table_xinfo(t.name) c WHERE t.type = 'table'
"""
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
    objects, expected = connection.execute(text(_IN_POSTGRES if postgres else _IN_SQLITE)), _expected(constraints=postgres)
    existing = {(row.kind, row.name) for row in objects}
    both = {name for kind, name in existing & expected if kind == "table"}
    named = [
        f"there is the {kind} {name}" for kind, name in sorted(existing - expected) if kind != "column" or name.partition(".")[0] in both
    ]
    named += [f"the {kind} {name} is missing" for kind, name in sorted(expected - existing)]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def _expected(*, constraints: bool) -> set[tuple[str, str]]:
    """The kinds and names of this version's objects; of PostgreSQL keys are indices with names of their own."""
    expected = {("table", _TABLE), ("column", f"{_TABLE}.version_num")}
    for table in METADATA.tables.values():
        expected |= {("table", table.name)} | {("column", f"{table.name}.{column.name}") for column in table.columns}
        expected |= {("index", str(index.name)) for index in table.indexes}
        for constraint in table.constraints if constraints else ():
            if isinstance(constraint, PrimaryKeyConstraint):
                expected.add(("index", f"{table.name}_pkey"))
            elif isinstance(constraint, UniqueConstraint):
                expected.add(("index", "_".join([table.name, *constraint.columns.keys(), "key"])))
    return expected | ({("index", f"{_TABLE}_pkc")} if constraints else set())
