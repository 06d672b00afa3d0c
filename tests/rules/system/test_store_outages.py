"""A store that goes away in the middle of something says nothing about what was looked at."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fleetd.engine.files import repair
from fleetd.engine.files.reconcile import reconcile
from fleetd.engine.jobs.legacy_import import import_legacy
from fleetd.protocol.requests.checkpoint import CheckpointVerify
from fleetd.store.api import StoreAway
from tests.support.fleet import Fleet


async def gone(what: object, name: str, work: Callable[[], Awaitable[object]]) -> None:
    """Let some work find the store away when it makes a call, and say so."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise StoreAway("The store cannot be reached.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(what, name, refuse)
        with pytest.raises(StoreAway):
            await work()


async def test_rows_and_files_are_compared_again(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    await fleet.settle()
    fleet.sql("DELETE FROM checkpoints")
    await gone(fleet.engine, "read", lambda: reconcile(fleet.engine))
    assert fleet.sql("SELECT id FROM checkpoints") == []
    await reconcile(fleet.engine)
    assert fleet.sql("SELECT id FROM checkpoints") == [{"id": taken.id}]


async def test_the_old_file_is_imported_again(fleet: Fleet) -> None:
    file = fleet.engine.config.database.with_name("squawk.json")
    file.write_text(json.dumps({"mailboxes": {}, "events": {}, "cursors": {}, "locks": {}}))
    await gone(fleet.engine, "write", lambda: import_legacy(fleet.engine))
    assert file.exists()
    await import_legacy(fleet.engine)
    assert not file.exists()


async def test_no_row_counts_as_damaged(fleet: Fleet) -> None:
    await fleet.checkpoint(await fleet.mission())
    await gone(repair, "get", lambda: fleet.do(CheckpointVerify()))
