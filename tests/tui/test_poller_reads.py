"""What the live view reads of the daemon."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetctl.client.models import LockAcquire
from fleetctl.tui.poller import read


def test_a_lock_of_another_repository_is_seen_by_where_it_is(
    home: Path, connect: Callable[[], Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    for name in ("one", "two"):
        (home / "home" / name / ".git").mkdir(parents=True)
        place = str(home / "home" / name)
        client.call(LockAcquire(file="src/form.py", agent_id=name, cwd=place))
    monkeypatch.chdir(home / "home" / "one")
    assert {each.file for each in read(client, "locks", None)} == {
        "src/form.py",
        "~/two/src/form.py",
    }
    (home / "home" / "three").mkdir()
    monkeypatch.chdir(home / "home" / "three")
    (home / "home" / "three").rmdir()
    assert {each.file for each in read(client, "locks", None)} == {
        "~/one/src/form.py",
        "~/two/src/form.py",
    }
