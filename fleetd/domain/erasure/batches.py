"""Batches: large tables are looked through for what goes, which is deleted batch by batch.

Only rows that nobody misses meanwhile go this way, so that the transaction that removes missions
and agents finds few left. Events from ``before`` on stay for it, the newest among them: the log's
end must not go back.
"""

import msgspec

from ...protocol.records import Record
from ..core.batches import Batch
from ..core.context import Context
from ..core.registry import frees_space
from ..core.tx import Row, Tx
from .erase import clear_notes, free_locks
from .scope import NAMING_RUNS, Scope

# How many rows one piece of work looks at.
AT_ONCE = 250


class TableCursor(Record, frozen=True, kw_only=True):
    """Where looking has come to: the number of a strand, and the last key that was looked at."""

    strand: int = 0
    since: int | str | None = None


class Piece(Record, frozen=True, kw_only=True):
    """A piece of a table from a cursor up to the key ``until``: so many rows of it go."""

    table: str
    rows: int
    cursor: TableCursor
    until: int | str | None


class Strand(msgspec.Struct, frozen=True):
    """A way through a table in the order of a key: rows of ``along`` are met, ``where`` goes."""

    table: str
    key: str
    along: str
    where: str
    params: Row


def strands(scope: Scope, before: int) -> list[Strand]:
    """Return the ways on which everything is met, no row twice, in an order that lasts."""
    clauses, params = scope.clauses(), scope.params
    all_params = {**params, "before": before}
    missions, agents = scope.named
    # A row without a mission is none of a mission's: unknown must not mean no.
    elsewhere = f"NOT coalesce(mission_id IN ({', '.join(missions) or 'NULL'}), 1 = 0)"
    others = f"NOT coalesce(agent_id IN ({', '.join(agents) or 'NULL'}), 1 = 0)"
    ways = [(f"mission_id = {each}", "1 = 1") for each in missions]
    ways += [(f"agent_id = {each}", elsewhere) for each in agents]
    if scope.called:
        unmet = f"{elsewhere} AND {others} AND ({scope.names_runs})"
        ways += [(f"type = '{kind}'", unmet) for kind in NAMING_RUNS]
    if scope.directory:
        ways.append(("1 = 1", f"{elsewhere} AND {others} AND ({clauses['events']})"))
    found = [
        Strand("events", "seq", f"{along} AND seq < :before", going, all_params)
        for along, going in ways
    ]
    if scope.agents or scope.directory:  # who sent what, and where a file lies, has no index
        over = f"status <> 'active' AND ({clauses['locks']})"
        found.append(Strand("messages", "id", "seq < :before", clauses["messages"], all_params))
        found.append(Strand("locks", "id", "1 = 1", over, params))
        return found
    for each in missions or ["NULL"]:
        mine = f"mission_id = {each}"
        found.append(Strand("messages", "id", f"{mine} AND seq < :before", "1 = 1", all_params))
        found.append(Strand("locks", "id", mine, "status <> 'active'", params))
    return found


def _within(strand: Strand, cursor: TableCursor) -> str:
    started = "1 = 1" if cursor.since is None else f"{strand.key} > :since"
    return f"{started} AND {strand.key} <= :until AND {strand.along} AND ({strand.where})"


def look(
    tx: Tx, ctx: Context, scope: Scope, before: int, cursor: TableCursor
) -> Batch[Piece, TableCursor]:
    """Return how far the next piece reaches, and how much of it goes."""
    ways = strands(scope, before)
    number, since = cursor.strand, cursor.since
    strand = ways[number]
    params = strand.params if since is None else {**strand.params, "since": since}
    started = "1 = 1" if since is None else f"{strand.key} > :since"
    rows = tx.all(
        f"SELECT {strand.key} AS key FROM {strand.table} WHERE {strand.along} AND {started}"
        f" ORDER BY {strand.key} LIMIT :limit",
        **params,
        limit=AT_ONCE,
    )
    until = rows[-1]["key"] if rows else None
    count = f"SELECT count(*) FROM {strand.table} WHERE {_within(strand, cursor)}"
    going = tx.value(count, **params, until=until) if rows else 0
    following = None if number + 1 == len(ways) else TableCursor(strand=number + 1)
    if len(rows) == AT_ONCE:
        following = TableCursor(strand=number, since=until)
    return Batch(Piece(table=strand.table, rows=going, cursor=cursor, until=until), following)


@frees_space
def drop(tx: Tx, ctx: Context, scope: Scope, before: int, piece: Piece) -> int:
    """Delete the rows of a piece that go, as it is now, with the notes and waits that hang on them.

    Returns how many.
    """
    strand = strands(scope, before)[piece.cursor.strand]
    where = _within(strand, piece.cursor)
    params = {**strand.params, "until": piece.until}
    if piece.cursor.since is not None:
        params["since"] = piece.cursor.since
    number: int = tx.value(f"SELECT count(*) FROM {strand.table} WHERE {where}", **params)
    if strand.table == "events" and not scope.keeps_agents:
        clear_notes(tx, scope, where, params)
    if strand.table == "locks":
        free_locks(tx, where, params)
    else:
        tx.run(f"DELETE FROM {strand.table} WHERE {where}", **params)
    return number
