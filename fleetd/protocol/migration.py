"""What ``fleetctl migrate`` and ``fleetd --migrate`` say to each other, line by line."""

from typing import Any

import msgspec

from .records import Record


class TableCheck(Record, frozen=True, kw_only=True):
    """A table of both stores: how many rows each has, and the SHA-256 over them in key order.

    ``first_difference`` is the key of the first row that is not the same, null when all are.
    """

    table: str
    source_rows: int
    target_rows: int
    source_digest: str
    target_digest: str
    first_difference: str | None

    @property
    def same(self) -> bool:
        """Whether both have the same rows."""
        return (self.source_rows, self.source_digest) == (self.target_rows, self.target_digest)


class Migration(Record, frozen=True, kw_only=True):
    """The result of a move or a comparison.

    ``moved`` is false after a comparison. ``setting`` is the new value of ``store`` in the
    configuration, without a password. ``replaced`` is the path of the database that was in the
    place of the new one; null if there was none.
    """

    moved: bool
    source: str
    target: str
    tables: list[TableCheck]
    setting: str
    replaced: str | None
    duration_ms: int

    @property
    def same(self) -> bool:
        """Whether both stores hold the same."""
        return all(table.same for table in self.tables)


class MigrationReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line: the progress, the result, or an error's document."""

    progress: tuple[str, int, int] | None = None
    report: Migration | None = None
    done: str | None = None
    error: dict[str, Any] | None = None


class MigrationRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The request, read from stdin: a URL may hold a password, and arguments are public.

    ``to`` and ``source`` are URLs, ``sqlite``, or empty for the value in the settings.
    """

    what: str
    to: str = ""
    source: str = ""
