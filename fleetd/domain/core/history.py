"""History: agents, locks and edits as they were, for the fleet at a moment.

A rule that changes one of them reports it here. At the end of its transaction a row is written with
the end of the log and the time. The newest row up to a moment is the state at that moment. Activity
prolongs leases and updates when an agent was last seen. Events already show both, so no row does.

Most locks are released unchanged. Only locks that change before that have rows here: the first row
is the lock as it was granted.
"""

from collections.abc import Sequence
from typing import Any

from ...protocol.timestamps import iso, to_ms
from .context import Context
from .sql import chunks, inside_of, named_params
from .tx import Tx

# The ``seq`` from which on the history is complete; without it, the beginning of the log.
KNOWN_FROM = "fleet_from"
_AGENT = (
    *("role", "harness", "session_id", "mission_id", "cwd", "status", "registered_at"),
    *("last_seen_at", "succeeded_by", "machine", "needs", "needs_since", "needs_text"),
    "needs_reset_at",
)
_LOCK = (
    *("mission_id", "purpose", "acquired_at", "expires_at", "timeout_ms", "fencing_token"),
    *("orphaned_at", "mode", "automatic"),
)
NEXT = "1 + (SELECT coalesce(max(seq), 0) FROM events)"
"""SQL for the position of the next event."""
_EDIT = ("place", "file", "at")


def agent_changed(tx: Tx, *agent_ids: str | None) -> None:
    """Keep the state of agents at the end of this transaction."""
    tx.touched.setdefault("agents", {}).update(dict.fromkeys(filter(None, agent_ids)))


def locks_change(tx: Tx, *lock_ids: str) -> None:
    """Keep the state of locks before they change now, and their state afterwards."""
    granted = {"expires_at": "NULL"}  # activity has prolonged it since
    source = ", ".join(granted.get(name, name) for name in _LOCK)
    for some in chunks([*lock_ids]):
        tx.run(
            f"INSERT INTO lock_history (lock_id, seq, changed_at, {', '.join(_LOCK)})"
            f" SELECT id, granted_seq, acquired_at, {source} FROM locks"
            f" WHERE id IN ({inside_of('id', some)}) AND NOT EXISTS"
            " (SELECT 1 FROM lock_history h WHERE h.lock_id = locks.id)",
            **named_params("id", some),
        )
    tx.touched.setdefault("locks", {}).update(dict.fromkeys(lock_ids))


def keep_leases(tx: Tx, seq: int, time: str) -> None:
    """Keep the leases at a position of the log; the events before it may be deleted after this.

    Those events had prolonged them. A lease that was in force there still ran at the place's time,
    and ran no longer than that of its holder's next activity would.
    """
    then = "CASE WHEN h.lock_id IS NULL THEN l.{0} ELSE h.{0} END AS {0}"
    names = ", ".join(then.format(name) for name in _LOCK)
    rows = tx.all(
        f"SELECT {names}, l.id,"
        " coalesce(h.changed_at, l.acquired_at) AS changed_at, l.expires_at AS last_expires_at"
        " FROM locks l LEFT JOIN lock_history h ON h.lock_id = l.id AND h.seq ="
        " (SELECT max(x.seq) FROM lock_history x WHERE x.lock_id = l.id AND x.seq <= :seq)"
        " WHERE l.granted_seq < :seq AND (l.status = 'active' OR l.ended_seq > :seq)"
        " AND coalesce(h.seq, l.granted_seq) < :seq AND coalesce(h.automatic, l.automatic) = 0"
        " AND h.orphaned_at IS NULL ORDER BY h.changed_at",
        seq=seq,
    )
    kept = {row["id"]: row for row in rows}  # the last of several rows at one position
    columns = ("id", "changed_at", *_LOCK)
    values = ", ".join(f":{name}" for name in columns)
    for row in kept.values():
        prolonged = iso(to_ms(time) + row["timeout_ms"])
        row["expires_at"] = min(prolonged, row["last_expires_at"])
        tx.run(
            f"INSERT INTO lock_history (lock_id, changed_at, {', '.join(_LOCK)}, seq)"
            f" VALUES ({values}, :seq)",
            **{name: row[name] for name in columns},
            seq=seq,
        )


def files_edited(tx: Tx, agent_id: str, paths: list[str]) -> None:
    """Keep the edits that this transaction recorded of an agent."""
    tx.touched.setdefault("edits", {}).update(dict.fromkeys((agent_id, path) for path in paths))


def keep(tx: Tx, ctx: Context) -> None:
    """Write the rows of this transaction's changes, with one statement per kind of record."""
    for table, ids in tx.touched.items():
        if table == "edits":
            _keep_edits(tx, [*ids])
            continue
        noun, columns = {"agents": ("agent", _AGENT), "locks": ("lock", _LOCK)}[table]
        for some in chunks([*ids]):
            into = f"{noun}_history ({noun}_id, seq, changed_at"
            source = f"id, {_end(tx)}, :now"
            where = f"id IN ({inside_of('id', some)})"
            params = named_params("id", some) | {"now": ctx.now}
            _insert(tx, into, source, columns, f"{table} WHERE {where}", params)
    tx.touched.clear()


def _keep_edits(tx: Tx, edits: list[tuple[str, str]]) -> None:
    of_agent: dict[str, list[str]] = {}
    for agent_id, path in edits:
        of_agent.setdefault(agent_id, []).append(path)
    for agent_id, paths in of_agent.items():
        for some in chunks(paths):
            where = f"agent_id = :agent AND path IN ({inside_of('id', some)})"
            params = named_params("id", some) | {"agent": agent_id}
            into = "edit_history (agent_id, path, seq"
            source = f"agent_id, path, {_end(tx)}"
            _insert(tx, into, source, _EDIT, f"edits WHERE {where}", params)


def _end(tx: Tx) -> str:
    return ":end" if tx.log_end else "(SELECT coalesce(max(seq), 0) FROM events)"


def _insert(
    tx: Tx, into: str, source: str, columns: Sequence[str], rows: str, params: dict[str, Any]
) -> None:
    """Write current rows; overwrite those that were already written at this position."""
    if tx.log_end:
        params = params | {"end": tx.log_end}
    names, key = ", ".join(columns), into.partition("(")[2]
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns)
    tx.run(
        f"INSERT INTO {into}, {names}) SELECT {source}, {names} FROM {rows}"
        f" ON CONFLICT ({key}) DO UPDATE SET {changed}",
        **params,
    )
