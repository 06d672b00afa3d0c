"""Retention of checkpoints: which of a mission are expired.

Source: behaviour, Pruning. Never: the newest ``keep`` of a mission, the target of ``latest.json``
of an unfinished mission, an unused checkpoint of a mission that waits for recovery.
"""

from collections.abc import Iterable

from ...protocol.types import OPEN_MISSION
from ..artifacts.kinds import KINDS
from ..artifacts.outbox import newest_with_file
from ..checkpoints.limits import COMPLETED
from ..core.context import Context
from ..core.soft_delete import LIVE
from ..core.tx import Row, Tx
from ..liveness.silence import detect
from .policy import RetentionPolicy, is_older


def expired(tx: Tx, ctx: Context, policy: RetentionPolicy, rows: list[Row]) -> Iterable[Row]:
    """Return those checkpoints of one mission that have to go."""
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=rows[0]["owner_id"])
    if mission is None:
        return []
    if mission["status"] in OPEN_MISSION:
        return _expired_of_open(tx, ctx, policy, mission["id"], rows)
    return _expired_of_finished(tx, ctx, mission, rows)


def _expired_of_open(
    tx: Tx, ctx: Context, policy: RetentionPolicy, mission_id: str, rows: list[Row]
) -> list[Row]:
    oldest_kept = tx.value(
        f"SELECT seq FROM checkpoints WHERE mission_id = :id AND {LIVE}"
        " ORDER BY seq DESC LIMIT 1 OFFSET :others",
        id=mission_id,
        others=policy.keep - 1,
    )
    if oldest_kept is None:  # there are fewer than that
        return []
    # The two differ while the newest one's file cannot be written.
    needed = {_newest(tx, mission_id), newest_with_file(tx, KINDS["checkpoint"], mission_id)}
    old = [
        row
        for row in rows
        if row["seq"] < oldest_kept
        and row["id"] not in needed
        and is_older(ctx, row["timestamp"], policy.days)
    ]
    if any(_unused(row) for row in old) and detect(tx, ctx, mission_id).candidates:
        return [row for row in old if not _unused(row)]
    return old


def _unused(row: Row) -> bool:
    return row["consumed_at"] is None and not row["undo"]


def _expired_of_finished(tx: Tx, ctx: Context, mission: Row, rows: list[Row]) -> list[Row]:
    """Of a finished mission only the final one stays, so many days from the mission's end."""
    final = _final(tx, mission)
    days = ctx.config.retention.completed_days
    ended = mission["completed_at"] or ""
    return [
        row
        for row in rows
        if row["id"] != final or is_older(ctx, max(row["timestamp"], ended), days)
    ]


def _final(tx: Tx, mission: Row) -> str | None:
    """Return the checkpoint that closed a mission, else its newest one."""
    closing = None
    if mission["status"] == "completed":
        closing = _newest(tx, mission["id"], " AND trigger_details = :details", details=COMPLETED)
    return closing or _newest(tx, mission["id"])


def _newest(tx: Tx, mission_id: str, also: str = "", **params: str) -> str | None:
    """Return the newest checkpoint that is no undo checkpoint."""
    found: str | None = tx.value(
        f"SELECT id FROM checkpoints WHERE mission_id = :mission AND {LIVE} AND undo = 0{also}"
        " ORDER BY seq DESC LIMIT 1",
        mission=mission_id,
        **params,
    )
    return found
