"""What the daemon does for itself, at start-up and daily; nothing here is on the wire."""

import secrets

from ...protocol.records import Record
from ...protocol.request import Mutation
from ..core.context import Context
from ..core.idempotency import KEPT_MS
from ..core.registry import handler
from ..core.tx import Tx
from ..liveness.silence import follow_boot

KEYS_AT_ONCE = 250


class Done(Record, frozen=True, kw_only=True):
    """Says whether there was anything to do."""

    done: bool


class StartUp(Mutation[Done], frozen=True):
    """Put the store in order before anybody is served; ``in_line`` are waits that are still on."""

    in_line: tuple[int, ...] = ()


class DropOldKeys(Mutation[Done], frozen=True):
    """Forget some idempotency keys whose time is over; done as long as there were any."""


@handler
def start_up(tx: Tx, ctx: Context, request: StartUp) -> Done:
    """Give the store its epoch, follow the machine's boot, forget this machine's waiters.

    Their clients went with the daemon that knew them, or while the store was away.
    """
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES ('epoch', :epoch) ON CONFLICT (key) DO NOTHING",
        epoch=secrets.token_hex(8),
    )
    follow_boot(tx, ctx)
    standing = {f"wait_{n}": each for n, each in enumerate(request.in_line)}
    tx.run(
        "DELETE FROM lock_waits WHERE machine = :machine"
        + (f" AND id NOT IN ({', '.join(f':{name}' for name in standing)})" if standing else ""),
        machine=ctx.machine,
        **standing,
    )
    return Done(done=True)


@handler
def drop_old_keys(tx: Tx, ctx: Context, request: DropOldKeys) -> Done:
    """Forget the results of requests that nobody will repeat any more, a few at a time."""
    forgotten = tx.all(
        "DELETE FROM idempotency_keys WHERE (method, key) IN (SELECT method, key"
        " FROM idempotency_keys WHERE created_at < :old ORDER BY created_at LIMIT :limit)"
        " RETURNING method",
        old=ctx.at(-KEPT_MS),
        limit=KEYS_AT_ONCE,
    )
    return Done(done=bool(forgotten))
