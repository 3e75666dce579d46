"""Making a ledger's tables, bringing them to this version's schema, and refusing a schema that is not known."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from lethe.errors import InputError, LedgerError

_FOLDER = Path(__file__).parent
_TABLE = "alembic_version"
_VERSION = text(f"SELECT version_num FROM {_TABLE}")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@cache
def newest() -> str:
    """The newest version of the schema that is known here."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def make_or_upgrade(connection: Connection) -> None:
    """Make the tables in an empty database, or bring those of an older ledger to this version; all in the present transaction.

    Raises:
        InputError: the database holds other tables.
        LedgerError: the ledger's schema is of a newer version.
    """
    names = set(inspect(connection).get_table_names())
    if names and _TABLE not in names:
        raise InputError(
            f"the database holds tables that are no ledger's: {', '.join(sorted(names)[:4])}.",
            source="the place of the ledger",
            remedy="give a database of its own.",
        )
    if names and _version(connection) == newest():
        return
    if names and (version := _version(connection)) not in _known():
        raise refused_version(version)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def require_same(connection: Connection) -> None:
    """As `require_newest`, of a ledger that was one of this version when it was opened."""
    if connection.execute(_VERSION).scalar_one_or_none() != newest():
        require_newest(connection)


def require_newest(connection: Connection) -> None:
    """Refuse a database that is no ledger of this version.

    Raises:
        InputError: it is no ledger.
        LedgerError: its schema is older, or newer.
    """
    if _TABLE not in inspect(connection).get_table_names():
        raise InputError(
            "the database is no ledger.", source="the place of the ledger", remedy="make one: `lethe ledger create`, or make=True."
        )
    if (version := _version(connection)) != newest():
        raise refused_version(version)


def refused_version(version: str) -> LedgerError:
    """The error of a schema that is not the newest."""
    if version not in _known():
        return LedgerError(
            f"the ledger's schema is of version {version or 'unknown'}, which this Lethe does not know; it knows {newest()}.",
            source="alembic_version",
            remedy="install the version of Lethe that wrote it, or a newer one; nothing was written.",
        )
    return LedgerError(
        f"the ledger's schema is of version {version}; this Lethe writes {newest()}.",
        source="alembic_version",
        remedy="open it once with make=True, which brings it to this version; keep a copy.",
    )


def _version(connection: Connection) -> str:
    found = connection.execute(_VERSION).scalars().all()
    return found[0] if len(found) == 1 else "unknown"


def _known() -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
