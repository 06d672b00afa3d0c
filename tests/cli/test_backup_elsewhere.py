"""``fleetctl backup`` where the daemon may write in its own directories only, as in its unit."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import Storage
from fleetd.protocol.requests.system import SystemBackup
from tests.support.processes import Daemon, Result


@pytest.fixture
def confined(daemon: Daemon, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the daemon refuse to write anywhere but beside its database."""
    call = Fleet.call

    def refusing(self: Fleet, request: Any, **options: Any) -> Any:
        if isinstance(request, SystemBackup) and Path(request.path).parent != home / "data":
            raise Storage("It cannot be written.", unwritable=str(Path(request.path).parent))
        return call(self, request, **options)

    monkeypatch.setattr(Fleet, "call", refusing)


def left_beside(home: Path) -> set[Path]:
    """Return what lies beside the database; its reserve may come at any time after the start."""
    return {file for file in (home / "data").iterdir() if file.suffix != ".ballast"}


def test_the_copy_comes_to_where_it_was_wanted(
    confined: None,
    home: Path,
    done: Callable[..., Result],
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = left_beside(home)
    target = home / "project" / "copy.db"
    assert f"Copied the database to {target}" in done("backup", "copy.db").out

    def no_links(*_: Any) -> None:
        raise OSError("another file system")

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Path, "hardlink_to", no_links)
        assert done("backup", "other.db", "--json").json["path"] == f"{home}/project/other.db"
    for copy in (target, home / "project" / "other.db"):
        assert copy.stat().st_mode & 0o777 == 0o600
        assert copy.stat().st_nlink == 1
        with closing(sqlite3.connect(copy)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert run("backup", "copy.db").status != 0
    assert left_beside(home) == before


def test_what_nobody_may_write_stays_refused(
    confined: None, home: Path, run: Callable[..., Result]
) -> None:
    refused = run("backup", str(home / "nowhere" / "copy.db"))
    assert (refused.status, "cannot be written" in refused.err) == (1, True)
    assert os.listdir(home / "project") == []
