"""Looking through large tables for what goes, and deleting it, piece by piece.

Only rows that nobody misses meanwhile go this way, so that the transaction that removes missions
and agents finds few left. Events from ``before`` on stay for it, the newest among them: the log's
end must not go back. Must not decide what goes; nothing here is on the wire.
"""

import msgspec

from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Row, Tx
from .clauses import NAMING_RUNS, Scope
from .erase import clear_notes, free_locks

# How many rows one piece of work looks at.
AT_ONCE = 250


class Place(Record, frozen=True, kw_only=True):
    """Where looking has come to: the number of a strand, and the last key that was looked at."""

    strand: int = 0
    since: int | str | None = None


class Piece(Record, frozen=True, kw_only=True):
    """A piece of a table: ``found`` rows of it go; ``following`` is None behind the last piece."""

    table: str
    found: int
    until: int | str | None
    following: Place | None


class PieceLook(Query[Piece], frozen=True):
    """Look at the next piece, changing nothing."""

    scope: Scope
    before: int
    place: Place


class Dropped(Record, frozen=True, kw_only=True):
    """How many rows went."""

    dropped: int


class PieceDrop(Mutation[Dropped], frozen=True):
    """Delete what goes of a piece that was looked at, as it is now."""

    scope: Scope
    before: int
    place: Place
    until: int | str


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


def _within(strand: Strand, place: Place) -> str:
    started = "1 = 1" if place.since is None else f"{strand.key} > :since"
    return f"{started} AND {strand.key} <= :until AND {strand.along} AND ({strand.where})"


@handler
def look(tx: Tx, ctx: Context, request: PieceLook) -> Piece:
    """Return how far the next piece reaches, and how much of it goes."""
    ways = strands(request.scope, request.before)
    number, since = request.place.strand, request.place.since
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
    count = f"SELECT count(*) FROM {strand.table} WHERE {_within(strand, request.place)}"
    found = tx.value(count, **params, until=until) if rows else 0
    following = None if number + 1 == len(ways) else Place(strand=number + 1)
    if len(rows) == AT_ONCE:
        following = Place(strand=number, since=until)
    return Piece(table=strand.table, found=found, until=until, following=following)


@handler
def drop(tx: Tx, ctx: Context, request: PieceDrop) -> Dropped:
    """Delete the rows of a piece that go, with the notes and waits that hang on them."""
    strand = strands(request.scope, request.before)[request.place.strand]
    where = _within(strand, request.place)
    params = {**strand.params, "until": request.until}
    if request.place.since is not None:
        params["since"] = request.place.since
    number = tx.value(f"SELECT count(*) FROM {strand.table} WHERE {where}", **params)
    if strand.table == "events" and not request.scope.keeps_agents:
        clear_notes(tx, request.scope, where, params)
    if strand.table == "locks":
        free_locks(tx, where, params)
    else:
        tx.run(f"DELETE FROM {strand.table} WHERE {where}", **params)
    return Dropped(dropped=number)
