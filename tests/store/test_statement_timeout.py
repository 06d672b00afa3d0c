"""A statement that never ends is ended, alone: its caller is told, and the store goes on."""

from collections.abc import Callable
from typing import Any

import pytest

from fleetd.protocol.errors import Unavailable
from fleetd.store.sqlite import group_commit

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    real = group_commit.SqliteExecutor.__init__
    monkeypatch.setattr(
        group_commit.SqliteExecutor, "__init__", lambda self, c, _=0: real(self, c, 0.05)
    )


async def test_a_statement_that_never_ends_is_ended_for_its_reader(
    open_store: Callable[..., Any],
) -> None:
    async with open_store() as store:
        with pytest.raises(Unavailable, match="took too long"):
            await store.read(lambda tx: tx.value(ENDLESS))
        assert await store.read(lambda tx: tx.value("SELECT 1")) == 1


async def test_a_statement_that_never_ends_is_ended_for_its_writer_and_stores_nothing(
    open_store: Callable[..., Any], tools: Any
) -> None:
    def endless(tx: Any) -> None:
        tx.run("INSERT INTO store_meta (key, value) VALUES ('half', '')")
        tx.run(f"INSERT INTO store_meta (key, value) SELECT 'x', ({ENDLESS})")

    async with open_store() as store:
        with pytest.raises(Unavailable, match="took too long"):
            await store.write(endless)
        await store.write(tools.put("whole"))
        found = "SELECT count(*) FROM store_meta WHERE key IN ('half', 'x')"
        assert await store.read(lambda tx: tx.value(found)) == 0
