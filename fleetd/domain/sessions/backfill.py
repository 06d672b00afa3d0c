"""What a transcript tells beside the events of its session; must not know how one is read."""

from collections.abc import Iterable
from typing import Any

import msgspec

from ...harness.report import AnyHappening, ToolFinished
from ..core.sql import in_sql
from ..liveness.open_calls import ENDS_A_CALL
from ..snapshots import triggers
from . import handlers
from .handlers import Scene

# A transcript's tail tells of some hundred calls at most, with others between them.
REMEMBERED_ENDS = 2_000
_data = msgspec.json.Decoder(dict[str, Any]).decode


def look_back(scene: Scene, told: Iterable[AnyHappening]) -> None:
    """Do what a transcript tells; it tells the same again each time.

    A plan that has not changed changes nothing. How a call ended is told once more only when it
    was not known. What failed meanwhile comes to light at once, so it is one boundary of the run.
    """
    known: frozenset[str] | None = None
    failed = False
    for each in told:
        if isinstance(each, ToolFinished):
            known = _outcomes_known(scene) if known is None else known
            if each.passed is None or each.call_id in known:
                continue
        handlers.carry_out(scene, each)
        failed = failed or handlers.is_failure(each)
    if failed:
        triggers.error_met(scene.tx, scene.ctx, scene.agent_id)


def _outcomes_known(scene: Scene) -> frozenset[str]:
    """Return the calls of which it is known how they ended; that a command ended is not enough."""
    rows = scene.tx.all(
        "SELECT type, data_json FROM events WHERE agent_id = :agent"
        f" AND type IN {in_sql(ENDS_A_CALL)} ORDER BY seq DESC LIMIT :most",
        agent=scene.agent_id,
        most=REMEMBERED_ENDS,
    )
    known = ((row["type"], _data(row["data_json"])) for row in rows)
    return frozenset(
        call_id
        for kind, data in known
        if isinstance(call_id := data.get("call_id"), str)
        and (kind != "command_finished" or data.get("result"))
    )
