"""File ownership where several machines share a store: who keeps a record's file."""

from ...protocol.types import Noun
from ..core.context import Context
from ..core.sql import inside_of, named_params
from ..core.tx import Tx
from .kinds import KINDS


def keeper(tx: Tx, ctx: Context, noun: Noun, record_id: str) -> str | None:
    """Return the other machine that keeps a record's file, as people call it; None for this one.

    Nobody keeps the file of one that has no row.
    """
    row = tx.one(
        "SELECT r.machine AS id, m.name AS name"
        f" FROM {KINDS[noun].table} r LEFT JOIN machines m ON m.id = r.machine"
        " WHERE r.id = :id",
        id=record_id,
    )
    if row is None or row["id"] == ctx.machine:
        return None
    return called(row["id"], row["name"])


def adopt(tx: Tx, ctx: Context, noun: Noun, record_ids: list[str]) -> int:
    """Keep the files of records whose machine is not here any more, and that lie on this one.

    A machine that lost its id is another one, and has the files of the one it was. What is marked
    deleted among them goes by itself. Returns how many they are.
    """
    table = KINDS[noun].table
    rows = tx.all(
        f"UPDATE {table} SET machine = :machine WHERE id IN ({inside_of('i', record_ids)})"
        f" AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.id = {table}.machine"
        " AND m.status = 'here') RETURNING id",
        machine=ctx.machine,
        **named_params("i", record_ids),
    )
    return len(rows)


def called(machine_id: str, name: str | None) -> str:
    """Return what a machine is called: its computer's name, and the id that tells it from others.

    One that the store does not know any more has its id alone.
    """
    return f"{name} ({machine_id})" if name else machine_id or "another machine"
