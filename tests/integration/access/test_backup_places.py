"""Where a copy of the database cannot be written, that is said, whatever is in the way."""

from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from fleetd.protocol.errors import Storage
from fleetd.protocol.requests.system import SystemBackup
from tests.support.fleet import Fleet

# Root may search everything, so the daemon's part is done by somebody else, over a real directory.
BEFORE = """
import sys
import trio
from pathlib import Path
from fleetd.host.file_system import FileSystem
from fleetd.engine.services.backup import _backup
from fleetd.protocol.errors import FleetError
"""
AFTER = """
class Nothing:
    files = FileSystem(inline=True)
    class store:
        async def copy_to(target):
            raise AssertionError("a copy was begun")

try:
    trio.run(_backup, Nothing, Path(sys.argv[1]))
except FleetError as error:
    print(error.kind, error.message, error.values.get("unwritable"))
"""


@pytest.mark.parametrize("below", ["copy.db", "deeper/copy.db"])
def test_a_backup_below_a_directory_that_may_not_be_searched_answers_storage(
    stranger: Callable[..., "Popen[bytes]"], home: Path, below: str
) -> None:
    closed = home / "closed"
    (closed / "deeper").mkdir(parents=True)
    closed.chmod(0o600)
    target = closed / below
    out, err = stranger(BEFORE, AFTER, target).communicate(timeout=60)
    told = out.decode().strip()
    assert told.startswith(f"storage {target} cannot be written: {target.parent} "), err.decode()
    assert told.endswith(str(target.parent))


async def test_a_name_that_is_too_long_answers_storage(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(Storage, match="cannot be written"):
        await fleet.do(SystemBackup(str(tmp_path / ("x" * 300))))
