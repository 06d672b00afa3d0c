"""A fleetd whose locks are wrong in one way, named by its first argument; for planted defects."""

import inspect
import sys
from typing import Any

import trio

from fleetd.__main__ import main
from fleetd.domain.core.context import Facts
from fleetd.domain.locks import leases, queue
from fleetd.engine.services import locks as asked
from fleetd.protocol.requests.lock import LockAcquire
from tests.chaos.plant import plant


def tokens_again() -> None:
    """Give a token once more."""

    def next_token(tx: Any) -> int:
        return 1 + (tx.value("SELECT max(fencing_token) AS token FROM locks") or 0) // 4 * 4

    plant(leases, "next_token", next_token)


def lease_ignored() -> None:
    """Take a lease for over before it is."""
    holder = leases.holder

    def early(tx: Any, ctx: Any, path: str) -> Any:
        row = holder(tx, path)
        if row is not None and row["expires_at"] <= ctx.at(row["timeout_ms"] // 2):
            leases.end(tx, row["id"], "expired", ctx.now)
        return expire(tx, ctx, path)

    expire = plant(leases, "expire", early)


def last_come_first() -> None:
    """Serve whoever came last."""
    first = "ORDER BY id LIMIT 1"
    if first not in inspect.getsource(leases.look):
        raise LookupError(f"leases.look does not say {first}")

    class Turned:
        def __init__(self, tx: Any) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tx, name)

        def all(self, sql: str, **values: Any) -> Any:
            return self._tx.all(sql.replace(first, "ORDER BY id DESC LIMIT 1"), **values)

    look = plant(leases, "look", lambda tx, path: look(Turned(tx), path))


def gone_are_served() -> None:
    """Leave a waiter in the line whose client has gone."""

    def stay(tx: Any, ctx: Any, ticket: Any, *, keep: bool) -> Any:
        return leave(tx, ctx, ticket, keep=True) if keep else None

    leave = plant(queue, "dequeue", stay)


def look_then_take() -> None:
    """Look whether a file is free, and take it a moment later without another look."""

    async def taken(engine: Any, request: LockAcquire, caller: Any, facts: Facts) -> Any:
        free = not await engine.store.read(lambda tx: leases.holder(tx, facts.lock_key))
        await trio.sleep(0.02)
        if free:
            end = "UPDATE locks SET status = 'released', released_at = expires_at"
            where = " WHERE normalized_path = :path AND status = 'active'"
            await engine.store.write(lambda tx: tx.run(end + where, path=facts.lock_key))
        return await take(engine, request, caller, facts)

    take = plant(asked, "_take", taken)


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    sys.exit(main())
