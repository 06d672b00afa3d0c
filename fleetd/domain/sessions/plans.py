"""A harness's own plan as the sorties of its mission."""

from ...harness.report import Planned
from ...wire.requests.sortie import SortieComplete, SortieCreate, SortieStart
from .. import sortie_work, sorties
from ..context import Context
from ..tx import Tx


def follow(tx: Tx, ctx: Context, mission_id: str, agent_id: str, planned: Planned) -> None:
    """Bring the sorties of an agent in line with its plan; items are matched by their text."""
    for item in planned.items:
        row = tx.one(
            "SELECT * FROM sorties WHERE mission_id = :mission AND title = :title",
            mission=mission_id,
            title=item.text,
        )
        if row is None:
            request = SortieCreate(mission_id, item.text, assigned_to=agent_id)
            sortie_id = sorties.create(tx, request, ctx).id
            status = "assigned"
        else:
            sortie_id, status = row["id"], row["status"]
        if status in ("completed", "failed", item.status):
            continue
        if item.status == "in_progress":
            sortie_work.start(tx, SortieStart(sortie_id, agent_id), ctx)
        elif item.status == "completed":
            sortie_work.complete(tx, SortieComplete(sortie_id, agent_id=agent_id), ctx)
