"""One SQLite file and its owner: opened when first used, durable, set aside when it is none.

What a transaction wrote is on disk when it ends, also where the power goes at that
moment. Any thread, one at a time; nothing of SQLite is imported before the first use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edged import log
from edged.errors import StoreError
from edged.store import make_directory

if TYPE_CHECKING:
    import sqlite3


class Database:
    """One file.

    Args:
        path: of it; its directory is made where it is missing.
        what: is kept there, for people: `jobs`.
        schema: statements that make what is missing.
        version: of the schema; a file of a newer one is left alone.
        session: statements for each time it is opened: what is in memory alone.
    """

    def __init__(
        self, path: str, what: str, schema: str, *, version: int, session: str = ""
    ) -> None:
        self._path, self._what = path, what
        self._schema, self._version, self._session = schema, version, session
        self._db: sqlite3.Connection | None = None
        self.broken = ""
        """Why the file was begun anew; empty where it was not."""

    @property
    def error(self) -> type[Exception]:
        """What SQLite raises."""
        return self._sqlite.Error  # type: ignore[no-any-return]  # imported when it is used

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that writes: all of it is on disk at the end, or nothing.

        Raises:
            StoreError: it is nothing.
        """
        db = self._opened()
        try:
            with db:
                db.execute("BEGIN IMMEDIATE")
                yield db
        except self.error as error:
            raise self._failed("write", error) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """To be read.

        Raises:
            StoreError: it cannot be.
        """
        db = self._opened()
        try:
            yield db
        except self.error as error:
            raise self._failed("read", error) from error

    def close(self) -> None:
        """Close it; the next use opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            make_directory(os.path.dirname(self._path))
            try:
                self._db = self._connect()
            except OSError as error:
                raise self._failed("open", error) from error
            except self._sqlite.DatabaseError as error:
                if isinstance(error, self._sqlite.OperationalError):
                    raise self._failed("open", error) from error
                self._set_aside(error)
                self._db = self._connect()
        return self._db

    @property
    def _sqlite(self) -> Any:
        import sqlite3  # noqa: PLC0415  a board that keeps nothing does not pay for it

        return sqlite3

    def _connect(self) -> sqlite3.Connection:
        # Not bound to a thread: its owner hands it from one to the next.
        db: sqlite3.Connection = self._sqlite.connect(
            self._path, timeout=1.0, isolation_level=None, check_same_thread=False
        )
        try:
            os.chmod(self._path, 0o600)
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > self._version:
                raise StoreError(
                    f"{self._path} is of a newer edged (version {version}): use that one, or "
                    "move the file away"
                )
            db.execute("PRAGMA journal_mode = WAL")
            # A commit is on disk when it returns, also where the power goes at that moment.
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(self._schema)
            db.executescript(self._session)
            db.execute(f"PRAGMA user_version = {self._version}")
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self, error: Exception) -> None:
        """A database that is none is kept, and a new one begun."""
        aside, number = f"{self._path}.broken", 0
        while os.path.lexists(aside):
            number += 1
            aside = f"{self._path}.broken.{number}"
        os.replace(self._path, aside)
        for ending in ("-wal", "-shm"):
            if os.path.exists(self._path + ending):
                os.replace(self._path + ending, aside + ending)
        self.broken = (
            f"{self._path} was broken ({error}): set aside as {aside}, begun anew without "
            f"{self._what}"
        )
        log.error(self.broken)

    def _failed(self, what: str, error: Exception) -> StoreError:
        self.close()
        hint = ": free some space" if "full" in str(error) else ""
        return StoreError(f"{self._what}: cannot {what} {self._path}: {error}{hint}")
