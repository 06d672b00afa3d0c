"""Error classification for SQLite, and the errors that clients get.

There are three cases: a disk that is full (nothing happened, the daemon goes on), a disk that
failed (its state is unknown, the daemon stops), and everything else.
"""

import errno

import apsw
import msgspec

from ...protocol.errors import Corrupt, FleetError, Storage, Unavailable
from . import page_checksums
from .database_files import FileReplaced

FREE_SPACE = "Free some space, then try again; reading and pruning still work."
# A quota and a file size limit are full disks too; SQLite reports them as I/O errors.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Operations that did not happen for lack of room. A failed sync is none of these, whatever its
# reason: the data to be synced may be gone by then.
_NOT_DONE = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE)


class DiskFull(Storage):
    """There is no room; nothing was stored, and nothing else is wrong."""


def classify(error: BaseException, system_errno: int = 0) -> BaseException:
    """Turn an I/O error that only means a lack of room into the error of a full disk.

    ``system_errno`` is that of the connection that raised the error.
    """
    if page_checksums.is_damage(error):
        return apsw.CorruptError(page_checksums.describe(error))
    if system_errno not in FULL:
        return error
    unmade = isinstance(error, apsw.CantOpenError)  # no room to create a file
    if unmade or getattr(error, "extendedresult", None) in _NOT_DONE:
        return apsw.FullError(str(error))
    return error


def leaves_doubt(error: BaseException) -> bool:
    """Return whether an error leaves the content of the disk unknown.

    After a failed sync the kernel may have dropped the unsynced data, and the next sync of the same
    file succeeds anyway: a sync must never be repeated.
    """
    return isinstance(error, apsw.IOError) and not page_checksums.is_damage(error)


def translate(error: BaseException) -> BaseException:
    """Turn a database error into the one that a client gets; return others unchanged."""
    if isinstance(error, FileReplaced):
        return Storage(
            f"This was not stored: {error}.", hint="fleetd stops. Its log has the next step."
        )
    if page_checksums.is_damage(error):
        return Corrupt(
            f"The database is damaged ({page_checksums.describe(error)}).",
            hint="Run fleetctl doctor to check it; checkpoints are also stored as files.",
        )
    if isinstance(error, apsw.FullError):
        return DiskFull("The disk is full; nothing was stored.", hint=FREE_SPACE)
    if isinstance(error, apsw.IOError):
        return disk_failed(error)
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return Storage(
            f"The database cannot be written ({error}).",
            hint="Check the permissions of the database and its directory.",
        )
    if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError):
        return Corrupt(
            f"A row of the database cannot be read ({error}).",
            hint="Run fleetctl doctor for its name; checkpoints are also stored as files.",
        )
    if isinstance(error, apsw.InterruptError):
        return Unavailable(
            "This took too long and was cancelled; nothing was stored.",
            hint="Request less at once. Run fleetctl doctor to check the database.",
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Unavailable(
            "Another program holds a lock on the database.",
            hint="Stop it (a sqlite3 shell, a copy in progress), then try again.",
        )
    return error


def disk_failed(error: BaseException) -> FleetError:
    """Return the error for clients while the daemon stops because its disk failed."""
    return Storage(
        f"The disk failed ({error}); nothing was acknowledged.",
        hint="fleetd stops, and systemd restarts it. Then send the same request again.",
        retry=True,
    )


def read_failed(error: BaseException) -> BaseException:
    """Return the error for a reader: unlike a failed write, this leaves nothing in doubt."""
    if page_checksums.is_damage(error):
        return translate(error)
    return Storage(
        f"The database could not be read ({error}).", hint="Check the disk, then try again."
    )
