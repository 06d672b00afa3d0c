"""Erase: delete rows with everything that hangs on them."""

import re
from collections.abc import Sequence, Set

from ...protocol.errors import InvalidState
from ...protocol.events import CheckpointDeleted, MissionDeleted
from ...protocol.requests.checkpoint import CheckpointDelete
from ...protocol.requests.mission import Deleted
from ...protocol.types import OPEN_MISSION
from ..artifacts import soft_delete
from ..core import tombstones
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.ids import find
from ..core.registry import frees_space
from ..core.sql import named_params, says
from ..core.tx import Row, Tx
from ..locks import leases
from .scope import Scope

# How many answers are in hand at a time, and for how many words the store looks by itself.
AT_ONCE = 500
_FEW = 20
_FURTHER = "(method, key) > (:method, :after)"
_STRINGS = re.compile(r'"((?:[^"\\]|\\.)*)"')


@frees_space
def delete_checkpoint(tx: Tx, ctx: Context, request: CheckpointDelete) -> Deleted:
    """Mark a checkpoint deleted; its file and then its row go after COMMIT."""
    row = soft_delete.find_live(tx, "checkpoint", request.checkpoint_id)
    soft_delete.mark_deleted(tx, ctx, "checkpoint", row["id"])
    emit(tx, ctx, CheckpointDeleted(checkpoint_id=row["id"]), mission_id=row["mission_id"])
    return Deleted(deleted=True)


def erase(tx: Tx, ctx: Context, scope: Scope, since: int) -> None:
    """Delete every row of a scope; who waits for a lock of it gets the lock.

    Its events and messages of before ``since`` must have gone already.
    """
    clauses, params = scope.clauses(since), scope.params
    ends = {run_id: _end_of(tx, run_id) for run_id in scope.runs}
    clear_notes(tx, scope, "1 = 1", params)
    _drop_results(tx, scope)
    freed = free_locks(tx, clauses["locks"], params)
    for table, where in clauses.items():
        tx.run(f"DELETE FROM {table} WHERE {where}", **params)
    if scope.agents:  # of a run that others recorded too
        agents = ", ".join(scope.named[1])
        tx.run(f"UPDATE runs SET agent_id = NULL WHERE agent_id IN ({agents})", **params)
    for mission_id in scope.missions:
        tombstones.note(tx, "mission", mission_id, None)
    for run_id, end in ends.items():
        tombstones.note(tx, "run", run_id, end)
    for path in freed:
        leases.serve(tx, ctx, path)


def _end_of(tx: Tx, run_id: str) -> int:
    """Return up to where in the log a run has files; what is dropped of the log sets its end back.

    A session may go on: what its run records after this is new.
    """
    newest = tx.value("SELECT max(seq) AS seq FROM snapshots WHERE run_id = :run", run=run_id)
    return max(position(tx), newest or 0)


def find_finished(tx: Tx, mission_id: str) -> Row:
    """Return the row of a mission that may be deleted; raises NotFound or InvalidState."""
    row = find(tx, "mission", mission_id)
    if row["status"] in OPEN_MISSION:
        raise InvalidState(
            f"Mission {row['id']} is {row['status']}; only a finished mission can be deleted.",
            hint=f"End it first, such as with: fleetctl mission cancel {row['id']} --reason …",
            status=row["status"],
        )
    return row


def delete_mission(tx: Tx, ctx: Context, mission_id: str) -> None:
    """Delete a finished mission with its sorties, mail, events, recoveries and checkpoints.

    The files of its checkpoints must have gone before, so that none brings it back.
    """
    row = find_finished(tx, mission_id)
    tx.run("UPDATE lock_waits SET mission_id = NULL WHERE mission_id = :id", id=row["id"])
    freed = free_locks(tx, "mission_id = :id", {"id": row["id"]})
    tx.run("DELETE FROM events WHERE mission_id = :id", id=row["id"])
    tx.run("DELETE FROM cursors WHERE stream = 'mission:' || :id", id=row["id"])
    if _kept_elsewhere(tx, ctx, row["id"]):
        tombstones.note(tx, "mission", row["id"], None)
    # Sorties, mail, recoveries, checkpoints and episodes hang on the mission's row and go with it.
    tx.run("DELETE FROM missions WHERE id = :id", id=row["id"])
    emit(tx, ctx, MissionDeleted(sorties=row["total_sorties"]))
    for path in freed:
        leases.serve(tx, ctx, path)


def _kept_elsewhere(tx: Tx, ctx: Context, mission_id: str) -> bool:
    """Whether another machine still has a file of a mission, which would bring it back."""
    found = tx.one(
        "SELECT 1 AS there FROM checkpoints WHERE mission_id = :id AND machine <> :machine LIMIT 1",
        id=mission_id,
        machine=ctx.machine,
    )
    return found is not None


def free_locks(tx: Tx, where: str, params: Row) -> list[str]:
    """Delete locks and return the paths that are free now.

    A waiter that was given one of them and does not know it yet finds its wait ended.
    """
    tx.run(
        f"DELETE FROM lock_waits WHERE lock_id IN (SELECT id FROM locks WHERE {where})", **params
    )
    freed = tx.all(
        "SELECT DISTINCT normalized_path FROM locks WHERE status = 'active'"
        f" AND ({where}) ORDER BY normalized_path",
        **params,
    )
    tx.run(f"DELETE FROM locks WHERE {where}", **params)
    return [row["normalized_path"] for row in freed]


def clear_notes(tx: Tx, scope: Scope, events: str, params: Row) -> None:
    """Take the notes that agents who stay have declared in a mission that goes.

    ``events`` says which events to look at.
    """
    m = ", ".join(f":m{number}" for number in range(len(scope.missions))) or "NULL"
    tx.run(
        f"UPDATE agents SET note_json = NULL WHERE note_json IS NOT NULL AND (mission_id IN ({m})"
        " OR id IN (SELECT agent_id FROM events WHERE type = 'agent_noted'"
        f" AND mission_id IN ({m}) AND ({events})))",
        **params,
    )


def _drop_results(tx: Tx, scope: Scope) -> None:
    # Missions and places stand inside sentences too; an agent's name may be any short word.
    inside = [*scope.missions]
    ends = r"(?!)"
    if scope.directory is not None:
        inside.append(place := scope.params["quoted"][1:-1])
        ends = re.escape(place) + r"(?![\w.-])"
    named = re.compile("|".join([*map(re.escape, scope.missions), ends]))
    drop_answers(tx, named, {*scope.agents, *scope.runs}, inside)


def drop_answers(
    tx: Tx, named: re.Pattern[str], names: Set[str], inside: Sequence[str] = ()
) -> None:
    """Drop kept answers that mention what goes: they would say it again to whoever repeats.

    ``named`` is looked for within texts, which then say one of ``inside``; ``names`` are whole
    ones. The store looks first, and piece by piece: who stands still in a transaction is ended.
    """
    sought, after = _sought([*inside, *(f'"{name}"' for name in sorted(names))]), ("", "")
    where = f"{_FURTHER} AND ({says('result_json', sought) or '1 = 1'})"
    while rows := tx.all(
        "SELECT method, key, result_json FROM idempotency_keys"
        f" WHERE {where} ORDER BY method, key LIMIT {AT_ONCE}",
        method=after[0],
        after=after[1],
        **sought,
    ):
        for row in rows:
            result = row["result_json"]
            if named.search(result) or names & set(_STRINGS.findall(result)):
                tx.run(
                    "DELETE FROM idempotency_keys WHERE method = :method AND key = :key",
                    method=row["method"],
                    key=row["key"],
                )
        after = rows[-1]["method"], rows[-1]["key"]


def _sought(words: Sequence[str]) -> Row:
    """Return words as parameters; none where they are so many that looking takes its time."""
    return named_params("word", words) if len(words) <= _FEW else {}
