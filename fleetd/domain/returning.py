"""What a database needs that came back from a copy or lies behind its files; not on the wire.

It has given out numbers that it does not remember: positions in its log, fencing tokens. A new
epoch tells subscribers so, and counters above everything seen keep an old token from fitting again.
"""

import secrets
from typing import Literal

import msgspec

from ..wire.base import Mutation
from ..wire.events import StoreRestored, payload_data
from ..wire.model import Record
from .context import Context
from .events import position
from .leases import next_token, raise_tokens
from .registry import handler
from .tx import Ring, Tx
from .upkeep import Done


class KnownCheckpoint(Record, frozen=True, kw_only=True):
    """A checkpoint as its row says it."""

    id: str
    mission_id: str
    undo: bool
    deleted: bool


class Extent(Record, frozen=True, kw_only=True):
    """How far a database reaches; its checkpoints stand newest first."""

    end: int
    last_event_at: str | None
    token: int
    missions: int
    checkpoints: list[KnownCheckpoint]


class RaiseFloors(Mutation[Done], frozen=True, kw_only=True):
    """Begin a new epoch whose counters start above ``seq`` and ``token``."""

    seq: int
    token: int
    source: Literal["copy", "files"]


class WriteAgain(Mutation[Done], frozen=True, kw_only=True):
    """Have the files of checkpoints written that are not where their rows say."""

    checkpoint_ids: list[str]


def extent(tx: Tx) -> Extent:
    """Read how far a database reaches; works with every schema there ever was."""
    newest = tx.one("SELECT timestamp FROM events ORDER BY seq DESC LIMIT 1")
    counted = tx.value("SELECT max(value) AS token FROM counters WHERE name = 'fencing'") or 0
    granted = tx.value("SELECT max(fencing_token) AS token FROM locks") or 0
    rows = tx.all("SELECT id, mission_id, undo, deleted_at FROM checkpoints ORDER BY seq DESC")
    return Extent(
        end=position(tx),
        last_event_at=newest["timestamp"] if newest else None,
        token=max(counted, granted),
        missions=tx.value("SELECT count(*) AS count FROM missions"),
        checkpoints=[
            KnownCheckpoint(
                id=row["id"],
                mission_id=row["mission_id"],
                undo=bool(row["undo"]),
                deleted=row["deleted_at"] is not None,
            )
            for row in rows
        ],
    )


@handler
def raise_floors(tx: Tx, request: RaiseFloors, ctx: Context) -> Done:
    """Give the store a new epoch, and every counter a start that nobody has seen."""
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES ('epoch', :epoch)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        epoch=secrets.token_hex(8),
    )
    raise_tokens(tx, request.token)
    _renumber_locks(tx)
    end = position(tx)
    payload = StoreRestored(source=request.source, end=end)
    # With a seq of its own: the log counts on from the highest there is.
    tx.insert(
        "events",
        {
            "seq": max(end, request.seq) + 1,
            "type": payload.type,
            "stream": "fleet",
            "timestamp": ctx.now,
            "activity": int(payload.activity),
            "data_json": msgspec.json.encode(payload_data(payload)).decode(),
        },
    )
    tx.after_commit(Ring())
    return Done(done=True)


def _renumber_locks(tx: Tx) -> None:
    """Give every lock that counts as held a new token: its file may have changed hands since.

    The lease stays, so that a holder which is still at work keeps its file; it has to ask again.
    """
    for row in tx.all("SELECT id FROM locks WHERE status = 'active' ORDER BY fencing_token"):
        tx.run(
            "UPDATE locks SET fencing_token = :token WHERE id = :id",
            token=next_token(tx),
            id=row["id"],
        )


@handler
def write_again(tx: Tx, request: WriteAgain, ctx: Context) -> Done:
    """Put checkpoints back on the list of work: the row is the outbox."""
    for checkpoint_id in request.checkpoint_ids:
        tx.run(
            "UPDATE checkpoints SET backed_up_at = NULL WHERE id = :id AND deleted_at IS NULL",
            id=checkpoint_id,
        )
    return Done(done=bool(request.checkpoint_ids))
