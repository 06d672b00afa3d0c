"""Epochs: a store's identity at its start, and after a restore from a copy or from its files.

A restored store has given out numbers that it no longer knows: positions in its log, fencing
tokens. A new epoch tells subscribers about it. Counters above all known numbers keep an old token
from becoming valid again.
"""

import secrets
from collections.abc import Collection
from typing import Literal

import msgspec

from ...protocol.events import StoreRestored, payload_data
from ...protocol.records import Record
from ...protocol.types import Noun
from ..artifacts.kinds import KINDS, RecordKind
from ..core.context import Context
from ..core.counters import skip_events
from ..core.event_log import position
from ..core.history import locks_change
from ..core.registry import frees_space
from ..core.soft_delete import LIVE
from ..core.sql import inside_of, named_params
from ..core.tx import Ring, Tx
from ..liveness.shutdown import keep_sessions_of_shutdown
from ..liveness.silence import rebase_awake_times
from ..locks.leases import next_token, raise_tokens
from ..locks.queue import skip_waits

# More tokens than can have been granted after the last known one.
TOKENS_UNSEEN = 1_000_000


class KnownRecord(Record, frozen=True, kw_only=True):
    """A record by its row; ``latest.json`` may be one that is nameable."""

    id: str
    owner_id: str
    nameable: bool
    deleted: bool


class Extent(Record, frozen=True, kw_only=True):
    """How far a database reaches; its records are sorted newest first."""

    end: int
    last_event_at: str | None
    token: int
    missions: int
    records: dict[Noun, list[KnownRecord]]

    def live(self, noun: Noun) -> list[KnownRecord]:
        """Return the records of a noun that are not deleted."""
        return [each for each in self.records[noun] if not each.deleted]


def extent(tx: Tx, nouns: Collection[Noun]) -> Extent:
    """Read how far a database reaches; works with every schema that has tables for ``nouns``."""
    newest = tx.one("SELECT timestamp FROM events ORDER BY seq DESC LIMIT 1")
    counted = tx.value("SELECT max(value) AS token FROM counters WHERE name = 'fencing'") or 0
    granted = tx.value("SELECT max(fencing_token) AS token FROM locks") or 0
    return Extent(
        end=position(tx),
        last_event_at=newest["timestamp"] if newest else None,
        token=max(counted, granted),
        missions=tx.value("SELECT count(*) AS count FROM missions"),
        records={noun: _known(tx, kind) if noun in nouns else [] for noun, kind in KINDS.items()},
    )


def _known(tx: Tx, kind: RecordKind) -> list[KnownRecord]:
    rows = tx.all(
        f"SELECT id, {kind.owner} AS owner, deleted_at,"
        f" CASE WHEN {kind.nameable} THEN 1 ELSE 0 END AS nameable"
        f" FROM {kind.table} ORDER BY seq DESC"
    )
    return [
        KnownRecord(
            id=row["id"],
            owner_id=row["owner"],
            nameable=bool(row["nameable"]),
            deleted=row["deleted_at"] is not None,
        )
        for row in rows
    ]


def begin_epoch(
    tx: Tx, ctx: Context, seq: int, token: int, source: Literal["copy", "files", "damage"]
) -> None:
    """Give the store a new epoch, whose counters start above ``seq`` and ``token``."""
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES ('epoch', :epoch)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        epoch=secrets.token_hex(8),
    )
    raise_tokens(tx, token)
    _renumber_locks(tx)
    skip_waits(tx)
    end = position(tx)
    begin = max(end, seq) + 1
    skip_events(tx, begin - end - 1)
    payload = StoreRestored(source=source, end=end)
    # With an explicit seq: the log continues from the highest one.
    tx.insert(
        "events",
        {
            "seq": begin,
            "type": payload.type,
            "stream": "fleet",
            "timestamp": ctx.now,
            "activity": int(payload.activity),
            "data_json": msgspec.json.encode(payload_data(payload)).decode(),
        },
    )
    tx.log_end = begin
    tx.after_commit(Ring())


def continue_after_loss(tx: Tx, ctx: Context, end: int, reached: int) -> bool:
    """Begin a new epoch after the log lost what was after ``end``; it had reached ``reached``.

    If files, or another machine, have begun one beyond that since then, that one applies. Returns
    whether this call began one.
    """
    begun = "SELECT seq FROM events WHERE seq > :reached AND type = :type"
    if tx.exists(begun, reached=max(end, reached), type=StoreRestored.type):
        return False
    token = (tx.value("SELECT value FROM counters WHERE name = 'fencing'") or 0) + TOKENS_UNSEEN
    begin_epoch(tx, ctx, reached, token, "damage")
    return True


def _renumber_locks(tx: Tx) -> None:
    """Give every held lock a new token: its file may have had another holder since.

    The lease stays, so that a holder that is still at work keeps its file; it has to ask for it
    again.
    """
    for row in tx.all("SELECT id FROM locks WHERE status = 'active' ORDER BY fencing_token"):
        locks_change(tx, row["id"])
        tx.run(
            "UPDATE locks SET fencing_token = :token WHERE id = :id",
            token=next_token(tx),
            id=row["id"],
        )


def reset_backups(tx: Tx, ctx: Context, noun: Noun, record_ids: Collection[str]) -> None:
    """Mark records as unwritten whose files are not where their rows say."""
    for record_id in record_ids:
        tx.run(
            f"UPDATE {KINDS[noun].table} SET backed_up_at = NULL WHERE id = :id AND {LIVE}",
            id=record_id,
        )


@frees_space
def start_up(tx: Tx, ctx: Context, waiting_locks: tuple[int, ...] = ()) -> None:
    """Give the store its epoch, adjust times to the machine's boot, delete this machine's waits.

    Their clients ended with the daemon that knew them, or while the store was unavailable. The
    ``waiting_locks`` are waits that go on.
    """
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES ('epoch', :epoch) ON CONFLICT (key) DO NOTHING",
        epoch=secrets.token_hex(8),
    )
    keep_sessions_of_shutdown(tx, ctx)
    rebase_awake_times(tx, ctx)
    waits = waiting_locks or (0,)  # no id is 0; an empty list would match nothing
    tx.run(
        "DELETE FROM lock_waits WHERE machine = :machine"
        f" AND id NOT IN ({inside_of('wait', waits)})",
        machine=ctx.machine,
        **named_params("wait", waits),
    )
