"""Erasure journal: records what was begun, so that an erasure is finished after a crash.

A client that repeats its request afterwards gets the promised answer: nothing that it names is
left.
"""

from typing import Any

import msgspec

from ...protocol.records import Record
from ...protocol.request import Mutation
from ...protocol.requests.mission import Deleted, MissionDelete
from ...protocol.requests.system import Forgotten
from ..core.context import Context
from ..core.idempotency import remember
from ..core.registry import frees_space
from ..core.tx import Row, Tx
from ..locks.keys import machine_key, split_machine
from .scope import ErasureTarget, Scope


class UnfinishedErasures(Record, frozen=True, kw_only=True):
    """What a crash left unfinished: targets, and whether the files still contain deleted bytes."""

    targets: list[ErasureTarget]
    bytes: bool


def record(tx: Tx, ctx: Context, target: ErasureTarget, scope: Scope) -> None:
    """Record the scope that this machine erases for a target, in place of an earlier one."""
    scope_json = msgspec.json.encode(scope).decode()
    _record(tx, ctx, target.kind, machine_key(target.machine, target.name), scope_json)


def record_bytes(tx: Tx, ctx: Context) -> None:
    """Record that the database's files still hold the bytes of deleted rows."""
    _record(tx, ctx, "bytes", "", "")


def _record(tx: Tx, ctx: Context, kind: str, name: str, scope_json: str) -> None:
    tx.run(
        "INSERT INTO forgetting (kind, name, scope_json, machine)"
        " VALUES (:kind, :name, :scope, :machine) ON CONFLICT (kind, name) DO UPDATE SET"
        " scope_json = excluded.scope_json, machine = excluded.machine",
        machine=ctx.machine,
        kind=kind,
        name=name,
        scope=scope_json,
    )


def recorded_scope(tx: Tx, target: ErasureTarget) -> Scope | None:
    """Return the scope of an unfinished erasure of a target."""
    row = tx.one(
        "SELECT scope_json FROM forgetting WHERE kind = :kind AND name = :name",
        kind=target.kind,
        name=machine_key(target.machine, target.name),
    )
    return msgspec.json.decode(row["scope_json"], type=Scope) if row else None


@frees_space
def remove(tx: Tx, ctx: Context, target: ErasureTarget) -> None:
    """Remove a target from the journal; marked records are deleted anyway."""
    tx.run(
        "DELETE FROM forgetting WHERE kind = :kind AND name = :name",
        kind=target.kind,
        name=machine_key(target.machine, target.name),
    )


def unfinished(tx: Tx, ctx: Context) -> UnfinishedErasures:
    """Return the erasures to finish, without those of other machines that are still here."""
    rows = tx.all(
        "SELECT kind, name FROM forgetting f WHERE f.machine = :machine OR NOT EXISTS"
        " (SELECT 1 FROM machines m WHERE m.id = f.machine AND m.status <> 'lost')"
        " ORDER BY kind, name",
        machine=ctx.machine,
    )
    return UnfinishedErasures(
        targets=[_target(row) for row in rows if row["kind"] != "bytes"],
        bytes=any(row["kind"] == "bytes" for row in rows),
    )


def _target(row: Row) -> ErasureTarget:
    machine, name = split_machine(row["name"]) if row["kind"] == "project" else ("", row["name"])
    return ErasureTarget(kind=row["kind"], name=name, machine=machine)


@frees_space
def bytes_scrubbed(tx: Tx, ctx: Context) -> None:
    """Note that no file of the database contains the deleted bytes any more."""
    tx.run("DELETE FROM forgetting WHERE kind = 'bytes'")


def remember_answer(tx: Tx, ctx: Context, asked: Mutation[Any], scope: Scope) -> None:
    """Store an answer under the request's key in the first transaction; a complete one follows.

    It counts only what is known by then.
    """
    if asked.idempotency_key is None:
        return
    if isinstance(asked, MissionDelete):
        remember(tx, ctx, asked, Deleted(deleted=True))
        return
    text = "fleetd was ended meanwhile and has finished it since: only missions and agents were"
    answer = Forgotten(
        dry_run=False,
        missions=len(scope.missions),
        sorties=0,
        agents=len(scope.agents),
        locks=0,
        messages=0,
        events=0,
        checkpoints=0,
        recoveries=0,
        cursors=0,
        shared_missions=len(scope.shared),
        shared=scope.shared,
        warnings=[f"{text} counted."],
    )
    remember(tx, ctx, asked, answer)
