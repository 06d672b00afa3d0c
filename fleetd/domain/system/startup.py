"""Start-up: a store is put in order before anybody is served."""

import secrets

from ..core.context import Context
from ..core.registry import frees_space
from ..core.tx import Tx
from ..liveness.silence import rebase_awake_times


@frees_space
def start_up(tx: Tx, ctx: Context, in_line: tuple[int, ...] = ()) -> None:
    """Give the store its epoch, follow the machine's boot, forget this machine's waiters.

    Their clients went with the daemon that knew them, or while the store was away. Those
    ``in_line`` are waits that are still on.
    """
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES ('epoch', :epoch) ON CONFLICT (key) DO NOTHING",
        epoch=secrets.token_hex(8),
    )
    rebase_awake_times(tx, ctx)
    standing = {f"wait_{n}": each for n, each in enumerate(in_line)}
    tx.run(
        "DELETE FROM lock_waits WHERE machine = :machine"
        + (f" AND id NOT IN ({', '.join(f':{name}' for name in standing)})" if standing else ""),
        machine=ctx.machine,
        **standing,
    )
