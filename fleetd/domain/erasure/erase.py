"""Erase: deletes rows with everything that depends on them, those of large tables in batches.

Only rows that nobody misses meanwhile are deleted in batches, so that few are left for the
transaction that removes missions and agents. Events from ``before`` on are left to it, the newest
among them: the log's end must not go back.
"""

import re
from collections.abc import Sequence, Set

import msgspec

from ...protocol.errors import Corrupt, Incompatible, InvalidState
from ...protocol.events import MissionDeleted
from ...protocol.records import Record
from ...protocol.types import ID_PREFIXES, OPEN_MISSION
from ..checkpoints.codec import from_row, to_columns
from ..core import tombstones
from ..core.context import Context
from ..core.event_log import emit, position
from ..core.history import agent_changed
from ..core.ids import find
from ..core.registry import frees_space
from ..core.soft_delete import LIVE, mark_deleted
from ..core.sql import Batch, contains_any, inside_of, named_params
from ..core.tx import Row, Tx, WriteBackup
from ..locks import leases
from ..locks.targets import Target, target_of
from .scope import NAMING_RUNS, Scope

# Up to this many words, the store searches by itself.
_FEW = 20
_FURTHER = "(method, key) > (:method, :after)"
_STRINGS = re.compile(r'"((?:[^"\\]|\\.)*)"')


def erase(tx: Tx, ctx: Context, scope: Scope, since: int) -> None:
    """Delete every row of a scope, and give its locks to the agents that wait for them.

    Its events and messages from before ``since`` must be deleted already.
    """
    clauses, params = scope.clauses(since), scope.params
    # The position up to which a run has files. Deleting from the log moves its end back. Records
    # that a session makes when it goes on after this are new.
    newest = "SELECT max(seq) AS seq FROM snapshots WHERE run_id = :run"
    ends = {run: max(position(tx), tx.value(newest, run=run) or 0) for run in scope.runs}
    clear_notes(tx, scope, "1 = 1", params)
    clear_checkpoints(tx, ctx, scope, clauses["notes"], params)
    _drop_results(tx, ctx, scope)
    freed = free_locks(tx, clauses["locks"], params)
    for table, where in (scope.edits() | clauses).items():
        tx.run(f"DELETE FROM {table} WHERE {where}", **params)
    if scope.agents:  # runs that others recorded too
        agents = inside_of("a", scope.agents)
        tx.run(f"UPDATE runs SET agent_id = NULL WHERE agent_id IN ({agents})", **params)
    for mission_id in scope.missions:
        tombstones.note(tx, "mission", mission_id, None)
    for run_id, end in ends.items():
        tombstones.note(tx, "run", run_id, end)
    leases.serve(tx, ctx, *freed)


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

    The files of its checkpoints must be deleted before, so that none restores it.
    """
    row = find_finished(tx, mission_id)
    tx.run("UPDATE lock_waits SET mission_id = NULL WHERE mission_id = :id", id=row["id"])
    freed = free_locks(tx, "mission_id = :id", {"id": row["id"]})
    tx.run("DELETE FROM events WHERE mission_id = :id", id=row["id"])
    tx.run("DELETE FROM cursors WHERE stream = 'mission:' || :id", id=row["id"])
    # The usage of its agents stays theirs.
    tx.run(
        "UPDATE usage_records SET mission_id = NULL, sortie_id = NULL WHERE mission_id = :id",
        id=row["id"],
    )
    elsewhere = "SELECT 1 AS there FROM checkpoints WHERE mission_id = :id AND machine <> :machine"
    if tx.exists(f"{elsewhere} LIMIT 1", id=row["id"], machine=ctx.machine):
        tombstones.note(tx, "mission", row["id"], None)  # or their files would restore it
    # Its agents are in no mission any more once its row is gone.
    rows = tx.all("SELECT id FROM agents WHERE mission_id = :id", id=row["id"])
    agent_changed(tx, *(each["id"] for each in rows))
    tx.run("UPDATE agent_history SET mission_id = NULL WHERE mission_id = :id", id=row["id"])
    tx.run("UPDATE lock_history SET mission_id = NULL WHERE mission_id = :id", id=row["id"])
    # Sorties, mail, recoveries, checkpoints and episodes are deleted with the mission's row.
    tx.run("DELETE FROM missions WHERE id = :id", id=row["id"])
    emit(tx, ctx, MissionDeleted(sorties=row["total_sorties"]))
    leases.serve(tx, ctx, *freed)


def free_locks(tx: Tx, where: str, params: Row) -> list[Target]:
    """Delete locks and return the targets that are free now.

    A waiter that was given one of them and does not know it yet finds its wait ended.
    """
    tx.run(
        f"DELETE FROM lock_waits WHERE lock_id IN (SELECT id FROM locks WHERE {where})", **params
    )
    freed = tx.all(
        "SELECT DISTINCT normalized_path, directory FROM locks WHERE status = 'active'"
        f" AND ({where}) ORDER BY normalized_path",
        **params,
    )
    tx.run(f"DELETE FROM locks WHERE {where}", **params)
    return [target_of(row) for row in freed]


def clear_notes(tx: Tx, scope: Scope, events: str, params: Row) -> None:
    """Clear what agents that stay have noted, asked and begun in a mission to delete.

    ``events`` says which events to look at.
    """
    m = inside_of("m", scope.missions)
    theirs = f"agent_id IN (SELECT id FROM agents WHERE mission_id IN ({m}))"
    # Running work of an agent that moved on belongs to its present mission. Ended work may belong
    # to this one.
    ended = (
        "ended_at IS NOT NULL AND agent_id IN (SELECT agent_id FROM events"
        f" WHERE mission_id IN ({m}) AND ({events}))"
    )
    for table, agent in (("agents", "id"), ("agent_history", "agent_id")):
        # An agent that moves to another mission may still wait for what it asked in the one before.
        tx.run(
            f"UPDATE {table} SET needs_text = NULL WHERE needs_text IS NOT NULL AND (mission_id"
            f" IN ({m}) OR EXISTS (SELECT 1 FROM agent_history h WHERE h.agent_id = {table}.{agent}"
            f" AND h.needs_since = {table}.needs_since AND h.needs_text = {table}.needs_text"
            f" AND h.mission_id IN ({m})))",
            **params,
        )
    tx.run(f"UPDATE agent_history SET mission_id = NULL WHERE mission_id IN ({m})", **params)
    tx.run(f"UPDATE lock_history SET mission_id = NULL WHERE mission_id IN ({m})", **params)
    agents = tx.all(f"SELECT id FROM agents WHERE mission_id IN ({m})", **params)
    agent_changed(tx, *(row["id"] for row in agents))
    tx.run(
        f"UPDATE unconfirmed_asks SET text = NULL WHERE {theirs}"
        f" OR seq IN (SELECT seq FROM events WHERE mission_id IN ({m}))",
        **params,
    )
    tx.run(
        f"UPDATE running_work SET told = NULL, output = NULL WHERE {theirs} OR ({ended})",
        **params,
    )
    tx.run(
        f"UPDATE agents SET note_json = NULL WHERE note_json IS NOT NULL AND (mission_id IN ({m})"
        " OR id IN (SELECT agent_id FROM events WHERE type = 'agent_noted'"
        f" AND mission_id IN ({m}) AND ({events})))",
        **params,
    )


def clear_checkpoints(tx: Tx, ctx: Context, scope: Scope, notes: str, params: Row) -> None:
    """Remove notes to delete from the checkpoints of missions that stay, and from their files.

    ``notes`` says which notes to delete. Stored answers about such a mission are deleted whole,
    because a briefing may quote the notes.
    """
    elsewhere = f"NOT coalesce(mission_id IN ({inside_of('m', scope.missions)}), 1 = 0)"
    going: dict[str, set[str]] = {}
    for row in tx.all(
        f"SELECT id, mission_id FROM notes WHERE ({notes}) AND {elsewhere}", **params
    ):
        going.setdefault(row["mission_id"], set()).add(row["id"])
    if going:
        drop_answers(tx, ctx, re.compile("|".join(map(re.escape, going))), set(), [*going])
    for mission_id, ids in going.items():
        for row in tx.all(
            f"SELECT id FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
            f" AND ({contains_any('mission_json', ['noted'])})",
            mission=mission_id,
            noted=f'"id":"{ID_PREFIXES["note"]}-',
        ):
            _clear_checkpoint(tx, ctx, row["id"], ids)


def _clear_checkpoint(tx: Tx, ctx: Context, checkpoint_id: str, ids: set[str]) -> None:
    """Write a checkpoint without some notes; delete a damaged one whole."""
    try:
        checkpoint = from_row(find(tx, "checkpoint", checkpoint_id))
    except (Corrupt, Incompatible):
        mark_deleted(tx, ctx, "checkpoint", checkpoint_id)
        return
    known = checkpoint.mission
    if known is None or ids.isdisjoint(note.id for note in known.notes):
        return
    kept = [note for note in known.notes if note.id not in ids]
    without = msgspec.structs.replace(known, notes=kept)
    columns = to_columns(msgspec.structs.replace(checkpoint, mission=without))
    names = ", ".join(f"{name} = :{name}" for name in columns if name != "id")
    tx.run(f"UPDATE checkpoints SET {names}, backed_up_at = NULL WHERE id = :id", **columns)
    # The daemon of another machine learns from the row that it must write the file.
    tx.after_commit(WriteBackup("checkpoint", checkpoint_id))


def _drop_results(tx: Tx, ctx: Context, scope: Scope) -> None:
    # Sentences can contain missions and places, too; an agent's name may be any short word.
    inside = [*scope.missions]
    ends = r"(?!)"
    if scope.directory is not None:
        inside.append(place := scope.params["quoted"][1:-1])
        ends = re.escape(place) + r"(?![\w.-])"
    named = re.compile("|".join([*map(re.escape, scope.missions), ends]))
    drop_answers(tx, ctx, named, {*scope.agents, *scope.runs}, inside)


def drop_answers(
    tx: Tx, ctx: Context, named: re.Pattern[str], names: Set[str], inside: Sequence[str] = ()
) -> None:
    """Delete stored answers that mention the scope: a repeated request would return them.

    ``named`` is searched within texts, which then contain one of ``inside``; ``names`` are whole
    texts. The store searches first, and in batches: an idle transaction is ended.
    """
    words, after = [*inside, *(f'"{name}"' for name in sorted(names))], ("", "")
    # The store does not search for so many words that it takes long.
    params = named_params("word", words) if len(words) <= _FEW else {}
    where = f"{_FURTHER} AND ({contains_any('result_json', params) or '1 = 1'})"
    while rows := tx.all(
        "SELECT method, key, result_json FROM idempotency_keys"
        f" WHERE {where} ORDER BY method, key LIMIT :most",
        method=after[0],
        after=after[1],
        most=ctx.batches.kept_answers,
        **params,
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


class TableCursor(Record, frozen=True, kw_only=True):
    """The position of a search: the number of a walk, and the last key that was examined."""

    walk: int = 0
    since: int | str | None = None


class BatchFound(Record, frozen=True, kw_only=True):
    """A batch of a table, from a cursor to the key ``until``; ``rows`` is how many to delete."""

    table: str
    rows: int
    cursor: TableCursor
    until: int | str | None


class TableWalk(msgspec.Struct, frozen=True):
    """A walk through a table by key: it visits rows of ``along`` and deletes those of ``where``."""

    table: str
    key: str
    along: str
    where: str
    params: Row

    def beyond(self, cursor: TableCursor) -> tuple[str, Row]:
        """Return the condition for rows to visit after a cursor, and its parameters."""
        if cursor.since is None:
            return self.along, self.params
        return f"{self.key} > :since AND {self.along}", {**self.params, "since": cursor.since}

    def going(self, cursor: TableCursor, until: int | str | None) -> tuple[str, Row]:
        """Return the condition for rows to delete from a cursor to a key, and its parameters."""
        beyond, params = self.beyond(cursor)
        return f"{beyond} AND {self.key} <= :until AND ({self.where})", {**params, "until": until}


def table_walks(scope: Scope, before: int) -> list[TableWalk]:
    """Return the walks that visit everything, no row twice, in a stable order."""
    clauses, params = scope.clauses(), scope.params
    all_params = {**params, "before": before}
    # A row without a mission belongs to no mission: NULL must not exclude it.
    elsewhere = f"NOT coalesce(mission_id IN ({inside_of('m', scope.missions)}), 1 = 0)"
    others = f"NOT coalesce(agent_id IN ({inside_of('a', scope.agents)}), 1 = 0)"
    ways = [(f"mission_id = :{each}", "1 = 1") for each in named_params("m", scope.missions)]
    ways += [(f"agent_id = :{each}", elsewhere) for each in named_params("a", scope.agents)]
    if scope.called:
        unmet = f"{elsewhere} AND {others} AND ({scope.names_runs})"
        ways += [(f"type = '{kind}'", unmet) for kind in NAMING_RUNS]
    if scope.directory:
        ways.append(("1 = 1", f"{elsewhere} AND {others} AND ({clauses['events']})"))
    found = [
        TableWalk("events", "seq", f"{along} AND seq < :before", going, all_params)
        for along, going in ways
    ]
    if scope.agents or scope.directory:  # no index covers senders or places of files
        over = f"status <> 'active' AND ({clauses['locks']})"
        found.append(TableWalk("messages", "id", "seq < :before", clauses["messages"], all_params))
        found.append(TableWalk("locks", "id", "1 = 1", over, params))
        return found
    for each in inside_of("m", scope.missions).split(", "):
        mine = f"mission_id = {each}"
        found.append(TableWalk("messages", "id", f"{mine} AND seq < :before", "1 = 1", all_params))
        found.append(TableWalk("locks", "id", mine, "status <> 'active'", params))
    return found


def find_batch(
    tx: Tx, ctx: Context, scope: Scope, before: int, cursor: TableCursor
) -> Batch[BatchFound, TableCursor]:
    """Return how far the next batch reaches, and how many of its rows to delete."""
    ways, number = table_walks(scope, before), cursor.walk
    walk = ways[number]
    beyond, params = walk.beyond(cursor)
    rows = tx.all(
        f"SELECT {walk.key} AS key FROM {walk.table} WHERE {beyond}"
        f" ORDER BY {walk.key} LIMIT :limit",
        **params,
        limit=ctx.batches.rows,
    )
    until = rows[-1]["key"] if rows else None
    where, params = walk.going(cursor, until)
    going = tx.value(f"SELECT count(*) FROM {walk.table} WHERE {where}", **params) if rows else 0
    following = None if number + 1 == len(ways) else TableCursor(walk=number + 1)
    if len(rows) == ctx.batches.rows:
        following = TableCursor(walk=number, since=until)
    return Batch(BatchFound(table=walk.table, rows=going, cursor=cursor, until=until), following)


@frees_space
def drop_batch(tx: Tx, ctx: Context, scope: Scope, before: int, found: BatchFound) -> int:
    """Delete the rows of a batch that match now, with the notes and waits that depend on them.

    Returns how many.
    """
    walk = table_walks(scope, before)[found.cursor.walk]
    where, params = walk.going(found.cursor, found.until)
    number: int = tx.value(f"SELECT count(*) FROM {walk.table} WHERE {where}", **params)
    if walk.table == "events" and not scope.keeps_agents:
        clear_notes(tx, scope, where, params)
        _clear_states(tx, scope, walk, found, where, params)
    if walk.table == "locks":
        free_locks(tx, where, params)
    else:
        tx.run(f"DELETE FROM {walk.table} WHERE {where}", **params)
    return number


def _clear_states(
    tx: Tx, scope: Scope, walk: TableWalk, found: BatchFound, where: str, params: Row
) -> None:
    """Clear the state changes of missions that lose events; ``where`` says which events.

    Other events of such a mission may contain what those reported. Moments before this are unknown
    then.
    """
    tx.run(
        "UPDATE events SET state_json = NULL WHERE state_json IS NOT NULL"
        f" AND mission_id IN (SELECT mission_id FROM events WHERE {where})",
        **params,
    )
    if scope.directory:
        beyond, beside = walk.beyond(found.cursor)
        named = contains_any("state_json", ("quoted", "quoted_below"))
        tx.run(
            "UPDATE events SET state_json = NULL WHERE state_json IS NOT NULL"
            f" AND {beyond} AND seq <= :until AND ({named})",
            **{**beside, "until": found.until},
        )
