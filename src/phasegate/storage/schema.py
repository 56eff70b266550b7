"""Create the store, migrate an older one with a backup, and refuse a damaged or newer one."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, PhasegateError, StateConflict
from phasegate.files.durable_write import sync_folders

# "PhGa": distinguishes our store from other SQLite files
APPLICATION_ID = 0x50684761
_MIN_VERSION = 1
_BUSY_TIMEOUT_S = 60.0
_DAMAGE_ERROR_CODES = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_MISMATCH,
}


class Schema(NamedTuple):
    """One version of the store: how to create it, and how to migrate older versions.

    Added tables, and columns added at the end of a table, need no migration step. An added column
    must have the same default as its field, because rows of old events are created with that
    default.
    """

    version: int
    create_sql: str
    migrations: Mapping[int, str]


SCHEMA = Schema(
    version=4,
    create_sql="""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE event (
  position INTEGER PRIMARY KEY, feature TEXT NOT NULL, seq INTEGER NOT NULL, ts TEXT NOT NULL, kind TEXT NOT NULL,
  payload BLOB NOT NULL, hash TEXT NOT NULL, UNIQUE (feature, seq)
);
CREATE TABLE package (
  feature TEXT, id TEXT, title TEXT, state TEXT, round INTEGER, reason TEXT, remediation TEXT, since TEXT,
  tasks TEXT DEFAULT '',
  PRIMARY KEY (feature, id)
) WITHOUT ROWID;
CREATE TABLE job (
  feature TEXT, id TEXT PRIMARY KEY, wp TEXT, phase TEXT, round INTEGER, agent TEXT, started TEXT, ended TEXT,
  outcome TEXT, prompt_hash TEXT, output_hash TEXT, logs TEXT,
  tokens INTEGER DEFAULT 0, cost_usd REAL DEFAULT 0.0, retry_at_s REAL DEFAULT 0.0,
  workflow_phase TEXT DEFAULT '', model TEXT DEFAULT '',
  input_tokens INTEGER DEFAULT 0, cached_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX job_of_feature ON job (feature, started);
CREATE TABLE workflow (
  feature TEXT PRIMARY KEY, type TEXT, description TEXT, base TEXT, phases TEXT, position INTEGER, stage TEXT,
  round INTEGER, reason TEXT, remediation TEXT, noun TEXT, since TEXT, merged TEXT DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE gate (
  feature TEXT, number INTEGER, phase TEXT, round INTEGER, outcome TEXT, reasons TEXT, at TEXT,
  PRIMARY KEY (feature, number)
) WITHOUT ROWID;
CREATE TABLE seal (
  feature TEXT, job TEXT PRIMARY KEY, lines INTEGER, bytes INTEGER, hash TEXT, witnessed INTEGER
) WITHOUT ROWID;
""",
    migrations={},
)


def create_store(path: Path, store_id: str, schema: Schema = SCHEMA) -> None:
    """Create a new store under a temporary name, and rename it when it is complete.

    The caller must hold the lock.
    """
    if left := [
        other for other in (path, path.with_name(f"{path.name}-wal")) if os.path.lexists(other)
    ]:
        raise damaged_store_error(path, f"{left[0].name} already exists")

    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with (
        _translate_errors(path),
        closing(sqlite3.connect(temporary, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(f"BEGIN;{schema.create_sql};{_version_pragmas(schema)};COMMIT;")
        connection.execute("INSERT INTO meta VALUES ('store_id', ?)", (store_id,))
        connection.execute("PRAGMA journal_mode = WAL")

    temporary.rename(path)
    sync_folders(path.parent, path.parent)


def connect_store(path: Path, *, write: bool, schema: Schema = SCHEMA) -> sqlite3.Connection:
    """Open a store.

    A damaged, foreign or newer store is refused before it is opened for writing.
    """
    with _translate_errors(path):
        _require_nonempty_file(path)
        reader = _open_reader(path)

        try:
            version = _validate_store(reader, path, schema)
        except BaseException:
            reader.close()
            raise

        if not write and version == schema.version:
            return reader

        reader.close()
        if version < schema.version:
            _migrate(path, schema)
        if write:
            return _open_writer(path)

        return _open_reader(path)


def _open_reader(path: Path) -> sqlite3.Connection:
    """Open a store for reading, even on a read-only file system.

    SQLite must create an index of the write-ahead log to read it; if it cannot, a copy of the store
    is opened.
    """
    index = path.with_name(f"{path.name}-shm")
    if os.access(path.parent, os.W_OK) or index.exists():
        return _open_sqlite(path, "ro")
    if _has_wal(path):
        return _open_copy(path)

    return _open_sqlite(path, "ro&immutable=1")


def _open_copy(path: Path) -> sqlite3.Connection:
    """Open a temporary copy of the store.

    A dead process may have left data in the write-ahead log, and this data belongs to the store. If
    SQLite cannot create the log's index in place, it can create one for a copy.
    """
    # Imported here: `status` runs often, and rarely needs these two
    import shutil
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="phasegate-store-") as folder:
        for name in (path.name, f"{path.name}-wal"):
            shutil.copyfile(path.with_name(name), Path(folder, name))

        connection = _open_sqlite(Path(folder, path.name), "rw")
        # Makes SQLite open all files, so that they can be deleted
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection


def _open_writer(path: Path) -> sqlite3.Connection:
    connection = _open_sqlite(path, "rw")
    connection.execute("PRAGMA journal_mode = WAL")
    # An acknowledged step must survive a power failure
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _open_sqlite(path: Path, mode: str) -> sqlite3.Connection:
    name = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    address = f"file:{name}?mode={mode}"
    return sqlite3.connect(
        address, uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT_S, check_same_thread=False
    )


def _require_nonempty_file(path: Path) -> None:
    about = path.lstat()
    if not stat.S_ISREG(about.st_mode):
        raise damaged_store_error(path, "it is not a regular file")
    if about.st_size == 0:
        # SQLite would treat an empty file as a new database
        raise damaged_store_error(path, "it is empty")


def _has_wal(path: Path) -> bool:
    """Return True if there is a write-ahead log from which SQLite can repair the store."""
    log = path.with_name(f"{path.name}-wal")
    return log.is_file() and log.stat().st_size > 0


def _validate_store(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """Return the version of the store.

    Raise an error if the file is not a store or has an unknown version.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    # Read through SQLite, not from the file: closing the file would drop all locks of this
    # process on it, and another process could then remove the log that is in use
    # (sqlite.org/howtocorrupt.html).
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size % page_bytes and not _has_wal(path):
        # SQLite would notice this only when it reads the last page
        raise damaged_store_error(path, "it is truncated")

    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise damaged_store_error(path, "it is not a Phasegate store")
    if version < _MIN_VERSION:
        raise damaged_store_error(path, "it has no version")

    if version > schema.version:
        raise StateConflict(
            f"the store {path} was created by a newer version of Phasegate (it has version"
            f" {version}; this Phasegate supports up to {schema.version})",
            "use the newer Phasegate that wrote it; the store was not changed",
        )

    if not connection.execute("SELECT 1 FROM meta WHERE name = 'store_id'").fetchone():
        raise damaged_store_error(path, "it has no id")

    if connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type IN ('trigger', 'view')"
    ).fetchone():
        raise damaged_store_error(
            path, "it contains a trigger or a view that Phasegate did not create"
        )

    connection.execute(
        "SELECT position, feature, seq, ts, kind, payload, hash FROM event LIMIT 1"
    ).fetchone()
    if version == schema.version and (lacking := _missing_tables(connection, schema)):
        raise damaged_store_error(path, f"it has no table {lacking[0]}")

    return int(version)


def _missing_tables(connection: sqlite3.Connection, schema: Schema) -> list[str]:
    found = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    wanted = (part.partition(" (")[0] for part in schema.create_sql.split("CREATE TABLE ")[1:])
    return [name for name in wanted if name not in found]


def _migrate(path: Path, schema: Schema) -> None:
    """Migrate an older store, after writing a backup."""
    with closing(_open_writer(path)) as connection:
        # One process migrates; others wait here and find the store migrated
        connection.execute("BEGIN IMMEDIATE")
        version = _validate_store(connection, path, schema)
        if version == schema.version:
            return

        _back_up(path, path.with_name(f"{path.name}.version-{version}"))
        _add_missing_objects(connection, schema)
        for step in range(version, schema.version):
            for statement in schema.migrations.get(step, "").split(";"):
                connection.execute(statement)

        for statement in _version_pragmas(schema).split(";"):
            connection.execute(statement)

        connection.execute("COMMIT")


def _add_missing_objects(connection: sqlite3.Connection, schema: Schema) -> None:
    """Add the tables, indexes and columns that an older store lacks, without changing data."""
    with closing(sqlite3.connect(":memory:")) as model:
        model.executescript(schema.create_sql)
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        made = model.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC"
        )

        for type_, name, sql in made.fetchall():
            if name not in there:
                connection.execute(sql)
            elif type_ == "table":
                _add_columns(connection, name, _column_definitions(model, name))


def _add_columns(connection: sqlite3.Connection, table: str, wanted: Mapping[str, str]) -> None:
    known = _column_definitions(connection, table)
    for name, definition in wanted.items():
        if name not in known:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {definition}")


def _column_definitions(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the column definitions of a table, in order."""
    found = connection.execute("SELECT name, type, dflt_value FROM pragma_table_info(?)", (table,))
    return {name: f"{name} {type_} DEFAULT {default or 'NULL'}" for name, type_, default in found}


def _back_up(path: Path, backup: Path) -> None:
    temporary = backup.with_name(f"{backup.name}.new")
    temporary.unlink(missing_ok=True)
    with closing(_open_sqlite(path, "ro")) as source, closing(sqlite3.connect(temporary)) as target:
        source.backup(target)
    temporary.rename(backup)
    sync_folders(path.parent, path.parent)


def _version_pragmas(schema: Schema) -> str:
    return f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {schema.version}"


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise explain_sqlite_error(path, error) from error
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the store {path} cannot be used: {error.strerror}",
            "check the disk and its permissions",
        ) from error


def explain_sqlite_error(path: Path, error: sqlite3.Error) -> PhasegateError:
    """Convert an SQLite error to the error to raise, by who must act."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGE_ERROR_CODES:
        return damaged_store_error(path, str(error))

    if code == sqlite3.SQLITE_BUSY:
        return StateConflict(
            f"the store {path} has been locked for too long",
            "check whether another phasegate process is suspended",
        )

    return EnvironmentUnavailable(
        f"the store {path} cannot be used: {error}", "check the disk and its permissions"
    )


def damaged_store_error(path: Path, reason: str) -> StateConflict:
    """Return the error for a store that cannot be trusted."""
    return StateConflict(
        f"the store {path} is damaged: {reason}",
        "it was not changed: restore .phasegate from a backup, then run `phasegate audit verify`",
    )
