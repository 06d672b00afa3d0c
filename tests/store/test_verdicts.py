"""What an error of the disk means, by the call that met it and the reason that the kernel gave."""

import errno

import apsw
import pytest

from fleetd.store.verdicts import DiskFull, leaves_doubt, translate, verdict

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def met(result: int) -> BaseException:
    """Return the error that SQLite's extended result becomes."""
    error: BaseException = apsw.exception_for(result)
    return error


@pytest.mark.parametrize("reason", FULL)
@pytest.mark.parametrize("result", [apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE])
def test_what_could_not_be_written_for_want_of_room_is_a_full_disk(
    result: int, reason: int
) -> None:
    found = verdict(met(result), reason)
    assert not leaves_doubt(found)
    assert isinstance(translate(found), DiskFull)


@pytest.mark.parametrize("reason", FULL)
def test_a_file_that_cannot_be_made_for_want_of_room_is_a_full_disk(reason: int) -> None:
    assert isinstance(translate(verdict(met(apsw.SQLITE_CANTOPEN), reason)), DiskFull)


@pytest.mark.parametrize("reason", [0, *FULL])
@pytest.mark.parametrize(
    "result",
    [
        *(apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC, apsw.SQLITE_IOERR_TRUNCATE),
        *(apsw.SQLITE_IOERR_READ, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR),
    ],
)
def test_a_sync_that_failed_leaves_doubt_whatever_its_reason(result: int, reason: int) -> None:
    """What was to be synced may be gone, also when the disk was full only for a moment."""
    found = verdict(met(result), reason)
    assert leaves_doubt(found)
    assert translate(found).data()["retry"] is True  # type: ignore[attr-defined]


@pytest.mark.parametrize("reason", [0, errno.EIO, errno.EROFS])
def test_a_write_that_failed_for_another_reason_leaves_doubt(reason: int) -> None:
    assert leaves_doubt(verdict(met(apsw.SQLITE_IOERR_WRITE), reason))
