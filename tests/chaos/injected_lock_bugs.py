"""A fleetd whose locks are wrong in one way, named by its first argument; for planted defects."""

import sys
from typing import Any

import trio

from fleetd.__main__ import main
from fleetd.domain.core.context import Facts
from fleetd.domain.locks import leases, queue
from fleetd.domain.locks.targets import Target
from fleetd.engine.services import locks as asked
from fleetd.protocol.requests.lock import LockAcquire
from tests.chaos.plant import plant


def tokens_again() -> None:
    """Issue the same token again."""

    def next_token(tx: Any) -> int:
        return 1 + (tx.value("SELECT max(fencing_token) AS token FROM locks") or 0) // 4 * 4

    plant(leases, "next_token", next_token)


def lease_ignored() -> None:
    """Treat a lease as expired too early."""

    def early(tx: Any, ctx: Any, target: Target) -> Any:
        for row in leases.look(tx, target).held:
            if row["expires_at"] <= ctx.at(row["timeout_ms"] // 2):
                leases.end(tx, row, "expired", ctx.now)
        return settle(tx, ctx, target)

    settle = plant(leases, "settle", early)


def last_come_first() -> None:
    """Serve the last waiter first."""

    def behind(tx: Any, ctx: Any, wanted: Any, near: Any, before: int | None = None) -> Any:
        if before is None or (held := near.other(wanted)) is not None:
            return blocker(tx, ctx, wanted, near, before)
        later = (wait for wait in leases.waits_near(tx, wanted.target) if wait["id"] > before)
        return next((leases.Blocker(wait, wait) for wait in later), held)

    blocker = plant(leases, "blocker", behind)


def shared_ignored() -> None:
    """Grant exclusive locks while shared locks are held."""

    def excludes(row: Any, agent_id: str, wanted: Any) -> bool:
        return agent_id != wanted.agent_id and row["mode"] == "exclusive"

    plant(leases, "_excludes", excludes)


def patterns_apart() -> None:
    """Compare targets by their text only."""
    plant(leases, "overlap", lambda one, other: one == other)


def readers_pass() -> None:
    """Let readers overtake waiting writers."""
    plant(leases, "waits_near", lambda tx, target: [])


def gone_are_served() -> None:
    """Keep a waiter in the queue after its client has disconnected."""

    def stay(tx: Any, ctx: Any, ticket: Any, *, keep: bool) -> Any:
        return leave(tx, ctx, ticket, keep=True) if keep else None

    leave = plant(queue, "dequeue", stay)


def look_then_take() -> None:
    """Check whether a file is free, and take it a moment later without a second check."""

    async def taken(engine: Any, request: LockAcquire, caller: Any, facts: Facts) -> Any:
        target = Target(path=facts.lock_key or "")
        free = not await engine.store.read(lambda tx: leases.look(tx, target).held)
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
