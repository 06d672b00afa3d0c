"""Page checksums, by SQLite's own extension.

SQLite notices damage to the structure of a file, but not to its content: a flipped bit in a title
would be served as the title. With its VFS ``cksmvfs`` below every connection, a page that differs
from what was written is an error. Every database must be opened here; otherwise pages would be
written without their checksums.
"""

import contextlib
import functools
import struct
from pathlib import Path
from typing import Any

import apsw
import apsw.sqlite_extra

EXTENSION = "cksumvfs"
VFS = "cksmvfs"
# Bytes of the extension at the end of each page; it ignores a database with another number.
RESERVED, RESERVED_AT = 8, 20
_HEADER = 100


def opened(path: str, **options: Any) -> apsw.Connection:
    """Open a connection that checks pages, where the database has checksums."""
    available()
    return apsw.Connection(path, **options)


@functools.cache
def available() -> bool:
    """Return whether this build of SQLite has the extension; then every connection uses it."""
    with contextlib.suppress(
        apsw.sqlite_extra.NotAvailable, LookupError, apsw.ExtensionLoadingError
    ):
        with contextlib.closing(apsw.Connection(":memory:")) as connection:
            apsw.sqlite_extra.load(connection, EXTENSION)
        return True
    return False


def reserve(connection: apsw.Connection) -> None:
    """Reserve room for checksums in an empty database; any other stays unchanged."""
    if available():
        connection.reserve_bytes(None, RESERVED)


def begin(connection: apsw.Connection, page_size: int) -> None:
    """Write the first page of an empty database, so that every later page gets its checksum.

    The extension adds none before it has seen a first page that asks for them. A large copy writes
    other pages to the file before its first page, and pages from a WAL have no checksum yet.
    """
    connection.pragma("page_size", page_size)
    reserve(connection)
    connection.pragma("user_version", 1)


def checked(connection: apsw.Connection) -> bool:
    """Return whether the pages of a database are checked when they are read."""
    return available() and connection.pragma("checksum_verification") in (1, "1")


def has_room(path: Path) -> bool:
    """Return whether a database that no connection here uses has room for checksums."""
    return _first_page(path)[RESERVED_AT : RESERVED_AT + 1] == bytes([RESERVED])


def unmarked(path: Path) -> bool:
    """Return whether damage to the very byte that asks for checksums prevents their check."""
    page = _first_page(path)
    if len(page) < _HEADER or page[RESERVED_AT] == RESERVED:
        return False
    marked = page[:RESERVED_AT] + bytes([RESERVED]) + page[RESERVED_AT + 1 :]
    return sum_of(marked[:-RESERVED]) == marked[-RESERVED:]


def _first_page(path: Path) -> bytes:
    with path.open("rb") as file:
        header = file.read(_HEADER)
        size = int.from_bytes(header[16:18], "big")
        return header + file.read(max(0, (65_536 if size == 1 else size) - len(header)))


def sum_of(data: bytes) -> bytes:
    """Return the checksum that the extension writes after the bytes of a page."""
    words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
    first = second = 0
    for even, odd in zip(words[::2], words[1::2], strict=False):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack("<II", first, second)


def add(connection: apsw.Connection) -> None:
    """Rewrite a database in its WAL so that it asks for checksums. Raises apsw.Error.

    Its pages get them once a connection that has seen the first page copies them back.
    """
    reserve(connection)
    connection.execute("VACUUM")


def rewrite(connection: apsw.Connection) -> None:
    """Rewrite a database that others may have open. Raises apsw.Error.

    One without checksums gets none: other connections would copy pages into it that have none.
    """
    if not checked(connection):
        connection.reserve_bytes(None, 0)
    connection.execute("VACUUM")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def is_damage(error: BaseException) -> bool:
    """Return whether an error means a page other than what was written, not a failed disk."""
    return isinstance(error, apsw.CorruptError | apsw.NotADBError) or (
        isinstance(error, apsw.IOError)
        and getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_DATA
    )


def describe(error: BaseException) -> str:
    """Return the text of such an error for a person."""
    return "a page is not what was written" if isinstance(error, apsw.IOError) else str(error)
