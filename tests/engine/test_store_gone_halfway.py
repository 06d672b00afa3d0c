"""A store that goes away in the middle of something says nothing about what was looked at."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fleetd.operations import copies
from fleetd.operations.legacy import import_legacy
from fleetd.reconciling import reconcile
from fleetd.store.reach import StoreAway
from fleetd.wire.requests.checkpoint import CheckpointVerify
from tests.fleet import Fleet


@contextmanager
def gone(what: object, name: str) -> Iterator[None]:
    """Let a call find the store away, and say so."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise StoreAway("The store cannot be reached.")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreAway):
        patch.setattr(what, name, refuse)
        yield


async def test_rows_and_files_are_compared_again(fleet: Fleet) -> None:
    taken = await fleet.checkpoint(await fleet.mission())
    await fleet.settle()
    fleet.sql("DELETE FROM checkpoints")
    with gone(fleet.engine, "execute"):
        await reconcile(fleet.engine)
    assert fleet.sql("SELECT id FROM checkpoints") == []
    await reconcile(fleet.engine)
    assert fleet.sql("SELECT id FROM checkpoints") == [{"id": taken.id}]


async def test_the_old_file_is_imported_again(fleet: Fleet) -> None:
    file = fleet.engine.config.database.with_name("squawk.json")
    file.write_text(json.dumps({"mailboxes": {}, "events": {}, "cursors": {}, "locks": {}}))
    with gone(fleet.engine, "execute"):
        await import_legacy(fleet.engine)
    assert file.exists()
    await import_legacy(fleet.engine)
    assert not file.exists()


async def test_no_row_counts_as_damaged(fleet: Fleet) -> None:
    await fleet.checkpoint(await fleet.mission())
    with gone(copies, "get"):
        await fleet.do(CheckpointVerify())
