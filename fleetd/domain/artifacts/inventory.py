"""Which records have rows, by names alone; must not read a row where an index will do.

Nothing here is on the wire; comparing rows with files asks for it.
"""

from ...protocol.records import Record
from ...protocol.request import Query
from ...protocol.types import Noun
from ..core.context import Context
from ..core.counters import What, tally
from ..core.ids import find
from ..core.registry import handler
from ..core.tx import Tx
from .kinds import POLICIES, Policy
from .removal import Latest, latest_of
from ..core.soft_delete import LIVE, UNSETTLED


class Owners(Record, frozen=True, kw_only=True):
    """Missions that have checkpoints, or runs that have snapshots; and how many those are."""

    ids: list[str]
    records: int


class OwnersGet(Query[Owners], frozen=True):
    """Ask who has rows of a noun."""

    noun: Noun


class RowNames(Record, frozen=True, kw_only=True):
    """The records of an owner that have a row.

    ``rows`` are all of them, ``live`` those that are not deleted, ``elsewhere`` those whose files
    another machine keeps. Of this machine's, ``filed`` are those that must have a file, ``old``
    those of an older version; ``newest`` is what ``latest.json`` should be.
    """

    owner_id: str
    rows: frozenset[str]
    filed: frozenset[str]
    live: frozenset[str]
    elsewhere: frozenset[str] = frozenset()
    old: list[str]
    newest: str | None


class Names(Record, frozen=True, kw_only=True):
    """The names of several owners."""

    owners: list[RowNames]


class WholeId(Record, frozen=True, kw_only=True):
    """The whole id of a record, of which a part is enough to name it."""

    id: str


class WholeIdGet(Query[WholeId], frozen=True):
    """Ask for the whole id of a record that has a row; raises NotFound."""

    noun: Noun
    record_id: str


class Strangers(Record, frozen=True, kw_only=True):
    """How many of some missions nobody here knows."""

    missions: int


class StrangersGet(Query[Strangers], frozen=True):
    """Ask how many of some missions have no row."""

    mission_ids: list[str]


class NamesGet(Query[Names], frozen=True):
    """Ask for the names of some owners' records."""

    noun: Noun
    owner_ids: list[str]


class NewestFiled(Query[Latest], frozen=True):
    """Ask which of the records with a file is the newest that ``latest.json`` may be."""

    noun: Noun
    owner_id: str
    files: frozenset[str]


@handler
def owners(tx: Tx, ctx: Context, request: OwnersGet) -> Owners:
    """Return whose records there are."""
    policy = POLICIES[request.noun]
    rows = tx.all(f"SELECT DISTINCT {policy.owner} AS id FROM {policy.table}")
    what: What = "checkpoints" if request.noun == "checkpoint" else "snapshots"
    return Owners(ids=[row["id"] for row in rows], records=tally(tx, what))


@handler
def whole_id(tx: Tx, ctx: Context, request: WholeIdGet) -> WholeId:
    """Return the id of the one record that is meant."""
    return WholeId(id=find(tx, request.noun, request.record_id)["id"])


@handler
def names(tx: Tx, ctx: Context, request: NamesGet) -> Names:
    """Return the names of some owners' records."""
    policy = POLICIES[request.noun]
    unsettled = _unsettled(tx, policy)
    return Names(
        owners=[
            _names_of(tx, ctx, policy, owner_id, unsettled.get(owner_id, {}))
            for owner_id in request.owner_ids
        ]
    )


def _unsettled(tx: Tx, policy: Policy) -> dict[str, dict[str, bool]]:
    """Return what is still to be done, by owner: for each record whether it is deleted.

    Read from an index that is nearly always empty; asked for one owner, SQLite would read rows.
    """
    rows = tx.all(
        f"SELECT id, {policy.owner} AS owner, deleted_at FROM {policy.table} WHERE {UNSETTLED}"
    )
    found: dict[str, dict[str, bool]] = {}
    for row in rows:
        found.setdefault(row["owner"], {})[row["id"]] = row["deleted_at"] is not None
    return found


def _names_of(
    tx: Tx, ctx: Context, policy: Policy, owner_id: str, unsettled: dict[str, bool]
) -> RowNames:
    rows = tx.all(
        f"SELECT id, version, machine FROM {policy.table} WHERE {policy.owner} = :owner",
        owner=owner_id,
    )
    every = frozenset(row["id"] for row in rows)
    elsewhere = frozenset(row["id"] for row in rows if row["machine"] != ctx.machine)
    live = every - {record_id for record_id, deleted in unsettled.items() if deleted}
    ours = live - elsewhere
    return RowNames(
        owner_id=owner_id,
        rows=every,
        filed=every - elsewhere - unsettled.keys(),
        live=live,
        elsewhere=elsewhere,
        old=[r["id"] for r in rows if r["version"] != policy.version and r["id"] in ours],
        newest=_newest(tx, policy, owner_id, elsewhere),
    )


def _newest(tx: Tx, policy: Policy, owner_id: str, elsewhere: frozenset[str]) -> str | None:
    """Return the newest record that ``latest.json`` may be and that this machine keeps.

    Whose it is stands behind the content: where all are of one machine, it is not read.
    """
    newest = (
        f"SELECT id FROM {policy.table} WHERE {policy.owner} = :owner AND {LIVE}"
        f" AND {policy.nameable} ORDER BY seq DESC"
    )
    first = tx.one(f"{newest} LIMIT 1", owner=owner_id)
    if first is None or first["id"] not in elsewhere:
        return first["id"] if first else None
    rows = tx.all(newest, owner=owner_id)
    return next((row["id"] for row in rows if row["id"] not in elsewhere), None)


@handler
def newest_filed(tx: Tx, ctx: Context, request: NewestFiled) -> Latest:
    """Return the newest record that undoes nothing and has a file, of those that are kept here."""
    policy = POLICIES[request.noun]
    ours = tx.all(
        f"SELECT id FROM {policy.table} WHERE {policy.owner} = :owner AND machine = :machine",
        owner=request.owner_id,
        machine=ctx.machine,
    )
    files = request.files & {row["id"] for row in ours}
    rows = tx.all(
        f"SELECT id FROM {policy.table} WHERE {policy.owner} = :owner AND {LIVE}"
        f" AND {policy.nameable} ORDER BY seq DESC",
        owner=request.owner_id,
    )
    found = next((row["id"] for row in rows if row["id"] in files), None)
    return latest_of(tx, policy, found)


@handler
def strangers(tx: Tx, ctx: Context, request: StrangersGet) -> Strangers:
    """Count the missions that have no row."""
    named = {f"id_{n}": each for n, each in enumerate(request.mission_ids)}
    marks = ", ".join(f":{name}" for name in named)
    known = tx.value(f"SELECT count(*) AS known FROM missions WHERE id IN ({marks})", **named)
    return Strangers(missions=len(named) - known)
