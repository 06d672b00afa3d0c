"""What a forgetting has written down and still owes, so that a crash is finished later.

Must not delete anything but its own notes; nothing here is on the wire.
"""

import msgspec

from ...protocol.records import Record
from ...protocol.request import Mutation, Query
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Row, Tx
from ..locks.keys import of_machine, whose
from ..system.startup import Done
from .clauses import Scope
from .scope import Target


class ForgetWithdraw(Mutation[Done], frozen=True):
    """Give up what was begun: somebody was told that it failed, and may go on working."""

    target: Target


class Owed(Record, frozen=True, kw_only=True):
    """What a crash left to do: targets, and whether deleted bytes still stand in the files."""

    targets: list[Target]
    bytes: bool


class OwedGet(Query[Owed], frozen=True):
    """Ask what is left to forget."""


class BytesScrubbed(Mutation[Done], frozen=True):
    """Note that what was deleted is in none of the database's files any more."""


def owe(tx: Tx, ctx: Context, kind: str, name: str, scope_json: str) -> None:
    """Write something down, or anew, as what this machine is at."""
    tx.run(
        "INSERT INTO forgetting (kind, name, scope_json, machine)"
        " VALUES (:kind, :name, :scope, :machine) ON CONFLICT (kind, name) DO UPDATE SET"
        " scope_json = excluded.scope_json, machine = excluded.machine",
        machine=ctx.machine,
        kind=kind,
        name=name,
        scope=scope_json,
    )


def recorded(tx: Tx, target: Target) -> Scope | None:
    """Return what was found to go of a target that is owed."""
    row = tx.one(
        "SELECT scope_json FROM forgetting WHERE kind = :kind AND name = :name",
        kind=target.kind,
        name=of_machine(target.machine, target.name),
    )
    return msgspec.json.decode(row["scope_json"], type=Scope) if row else None


def drop_target(tx: Tx, target: Target) -> None:
    """Take a target off the list."""
    tx.run(
        "DELETE FROM forgetting WHERE kind = :kind AND name = :name",
        kind=target.kind,
        name=of_machine(target.machine, target.name),
    )


@handler
def withdraw(tx: Tx, ctx: Context, request: ForgetWithdraw) -> Done:
    """Take a target off the list; its marked checkpoints are on their way out all the same."""
    drop_target(tx, request.target)
    return Done(done=True)


@handler
def owed(tx: Tx, ctx: Context, request: OwedGet) -> Owed:
    """Return what is left to forget, without what another machine is at that is heard of."""
    rows = tx.all(
        "SELECT kind, name FROM forgetting f WHERE f.machine = :machine OR NOT EXISTS"
        " (SELECT 1 FROM machines m WHERE m.id = f.machine AND m.status <> 'lost')"
        " ORDER BY kind, name",
        machine=ctx.machine,
    )
    return Owed(
        targets=[_target(row) for row in rows if row["kind"] != "bytes"],
        bytes=any(row["kind"] == "bytes" for row in rows),
    )


def _target(row: Row) -> Target:
    machine, name = whose(row["name"]) if row["kind"] == "project" else ("", row["name"])
    return Target(kind=row["kind"], name=name, machine=machine)


@handler
def bytes_scrubbed(tx: Tx, ctx: Context, request: BytesScrubbed) -> Done:
    """Take the scrubbing off the list."""
    tx.run("DELETE FROM forgetting WHERE kind = 'bytes'")
    return Done(done=True)
