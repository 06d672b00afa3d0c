"""How long machines that share a store may be out of touch, and what must not be judged meanwhile.

A machine tells every 10 s that it is here: cheap enough for a thousand of them, and small beside
what follows. It is lost when it was not heard of for 60 s: five beats may be missing, so that a
failover of the database, a wireless network that comes back, or a daemon that was killed and is
started again costs no agent its place; a minute is also how long a dead process keeps its locks.
One that left in good order is about to come back in most cases, after an upgrade or a restart, and
its agents go on working meanwhile: it has 5 minutes, as long as an agent without a process.
"""

from typing import Any

from ..core.context import Context

BEAT_MS = 10_000
LOST_MS = 60_000
LEFT_MS = 300_000
# Who did not beat for so long could not hear the others beat either; and who beats again has said
# by then what waited on its machine until the store could be reached.
UNBROKEN_MS = 3 * BEAT_MS


def not_in_touch(agent: str) -> str:
    """Return SQL that asks whether word of an agent, a row by this name, may still be on its way.

    Its machine does not count as lost, and was not heard of just now, or only just again.
    ``touch_of`` has the parameters.
    """
    return (
        "(CAST(:machine AS TEXT) <> '' AND EXISTS (SELECT 1 FROM machines its"
        f" WHERE its.id = {agent}.machine AND its.status <> 'lost'"
        " AND (its.heard_awake_ms < :beaten OR its.since_awake_ms > :beaten)))"
    )


def touch_of(ctx: Context) -> dict[str, Any]:
    """Return the parameters of ``not_in_touch``; a machine by itself has nobody to wait for."""
    return {"machine": ctx.machine, "beaten": ctx.awake_ms - UNBROKEN_MS}
