"""Whose files a record's are, where several machines share a store; must not look at any file.

Nothing here is on the wire; whoever looks for a file asks for it.
"""

from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ...protocol.types import Noun
from ..core.context import Context
from ..core.registry import handler
from ..core.sql import inside_of, named_params
from ..core.tx import Tx
from .kinds import POLICIES


class Keeper(Record, frozen=True, kw_only=True):
    """The other machine that keeps a record's file, as people call it; None for this one."""

    machine: str | None


class KeeperGet(Query[Keeper], frozen=True):
    """Ask which machine keeps the file of a record; nobody does of one that has no row."""

    noun: Noun
    record_id: str


@handler
def keeper(tx: Tx, ctx: Context, request: KeeperGet) -> Keeper:
    """Return the other machine on which a record's file lies."""
    row = tx.one(
        "SELECT r.machine AS id, m.name AS name"
        f" FROM {POLICIES[request.noun].table} r LEFT JOIN machines m ON m.id = r.machine"
        " WHERE r.id = :id",
        id=request.record_id,
    )
    if row is None or row["id"] == ctx.machine:
        return Keeper(machine=None)
    return Keeper(machine=called(row["id"], row["name"]))


class Adopted(Record, frozen=True, kw_only=True):
    """Records whose files this machine keeps from now on."""

    ids: list[str]


class Adopt(Mutation[Adopted], frozen=True):
    """Keep the files of records whose machine is not here any more, and that lie on this one.

    A machine that lost its id is another one, and has the files of the one it was.
    """

    noun: Noun
    record_ids: list[str]


@handler
def adopt(tx: Tx, ctx: Context, request: Adopt) -> Adopted:
    """Take over what nobody here keeps; what is marked deleted among it goes by itself."""
    table = POLICIES[request.noun].table
    rows = tx.all(
        f"UPDATE {table} SET machine = :machine WHERE id IN ({inside_of('i', request.record_ids)})"
        f" AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.id = {table}.machine"
        " AND m.status = 'here') RETURNING id",
        machine=ctx.machine,
        **named_params("i", request.record_ids),
    )
    return Adopted(ids=[row["id"] for row in rows])


def called(machine_id: str, name: str | None) -> str:
    """Return what a machine is called: its computer's name, and the id that tells it from others.

    One that the store does not know any more has its id alone.
    """
    return f"{name} ({machine_id})" if name else machine_id or "another machine"
