"""Whose files a record's are, where several machines share a store; must not look at any file.

Nothing here is on the wire; whoever looks for a file asks for it.
"""

from ..wire.base import Query
from ..wire.model import Record
from ..wire.types import Noun
from .context import Context
from .policy import POLICIES
from .registry import handler
from .tx import Tx


class Keeper(Record, frozen=True, kw_only=True):
    """The other machine that keeps a record's file, as people call it; None for this one."""

    machine: str | None


class KeeperGet(Query[Keeper], frozen=True):
    """Ask which machine keeps the file of a record; nobody does of one that has no row."""

    noun: Noun
    record_id: str


@handler
def keeper(tx: Tx, request: KeeperGet, ctx: Context) -> Keeper:
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


def called(machine_id: str, name: str | None) -> str:
    """Return what a machine is called: its computer's name, and the id that tells it from others.

    One that the store does not know any more has its id alone.
    """
    return f"{name} ({machine_id})" if name else machine_id or "another machine"
