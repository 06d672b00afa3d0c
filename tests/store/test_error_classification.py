"""What an error of the disk means, by the call that met it and the reason that the kernel gave."""

import errno
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from fleetd.domain.core.tx import Tx
from fleetd.protocol.errors import Storage
from fleetd.store.sqlite.database_files import FileIdentity, HighWaterMark
from fleetd.store.sqlite.errors import DiskFull, classify, leaves_doubt, translate
from fleetd.store.sqlite.group_commit import SqliteCommitter
from fleetd.store.worker_thread import Job

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
    found = classify(met(result), reason)
    assert not leaves_doubt(found)
    assert isinstance(translate(found), DiskFull)


@pytest.mark.parametrize("reason", FULL)
def test_a_file_that_cannot_be_made_for_want_of_room_is_a_full_disk(reason: int) -> None:
    assert isinstance(translate(classify(met(apsw.SQLITE_CANTOPEN), reason)), DiskFull)


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
    found = classify(met(result), reason)
    assert leaves_doubt(found)
    assert translate(found).data()["retry"] is True  # type: ignore[attr-defined]


@pytest.mark.parametrize("reason", [0, errno.EIO, errno.EROFS])
def test_a_write_that_failed_for_another_reason_leaves_doubt(reason: int) -> None:
    assert leaves_doubt(classify(met(apsw.SQLITE_IOERR_WRITE), reason))


async def test_a_read_that_failed_is_told_to_its_reader_and_leaves_nothing_in_doubt(
    open_store: Any, tools: Any
) -> None:
    def unlucky(_: Tx) -> None:
        raise apsw.IOError("a page could not be read")

    async with open_store() as store:
        with pytest.raises(Storage, match="could not be read") as refusal:
            await store.read(unlucky)
        assert "retry" not in refusal.value.values, "nobody ends, and nobody starts again"
        assert (store.failure, store.failed.is_set()) == (None, False)
        assert await store.write(tools.put("later")) == "later"


async def test_a_transaction_that_cannot_be_ended_leaves_doubt(
    open_store: Any, database: Any
) -> None:
    """Whatever is asked next would become a part of it."""

    class Stuck:
        in_transaction, system_errno = True, 0

        def set_progress_handler(self, handler: Any, steps: int) -> None:
            pass

        def execute(self, sql: str) -> Any:
            if sql in ("COMMIT", "ROLLBACK"):
                raise apsw.BusyError(f"no {sql}")
            return SimpleNamespace(get=0)

    async with open_store():
        committer = SqliteCommitter(Stuck(), FileIdentity(database), HighWaterMark(database))  # type: ignore[arg-type]
        job = Job(lambda _: "done", None)
        committer.run([job])
        assert isinstance(committer.failure, apsw.BusyError)
        assert job.result is not None
        with pytest.raises(Exception, match="holds a lock on the database"):
            job.result.unwrap()
