"""How the daemon ends tells systemd whether to start it again: 78 says that it would not help."""

from pathlib import Path
from typing import Any

import pytest

from fleetd import daemon
from fleetd.host.instance_lock import AlreadyRunning
from fleetd.host.paths import PathRefused
from fleetd.protocol.errors import Corrupt, Storage, Unavailable
from fleetd.store.api import StoreFailed, StoreFull, StoreRefused, StoreUnready
from tests.support.fleet import settings


@pytest.mark.parametrize(
    ("error", "status"),
    [
        *((kind("why"), 78) for kind in (PathRefused, StoreRefused, Corrupt)),
        *((kind("why"), 1) for kind in (StoreUnready, StoreFull, StoreFailed, AlreadyRunning)),
        *((kind("why"), 1) for kind in (Storage, Unavailable, RuntimeError)),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else str(each),
)
@pytest.mark.parametrize("nested", [False, True])
def test_only_what_a_person_must_change_is_no_reason_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, nested: bool
) -> None:
    async def run(*_: Any) -> None:
        raise ExceptionGroup("from a nursery", [error]) if nested else error

    (tmp_path / "project").mkdir()
    monkeypatch.setattr(daemon, "_run", run)
    monkeypatch.setattr(daemon, "prepare_process", lambda **_: None)
    assert daemon.start(settings(tmp_path)) == status
