"""Tombstones of missions and runs, which no file may bring back.

A tombstone has the checksum of the id as its name, because the id is forgotten too. Daemons on
other machines learn here which of their files they have to delete.
"""

import hashlib
from typing import Literal

from .context import Context
from .sql import inside_of, named_params
from .tx import Tx

_COUNTER = "forgotten"
Owner = Literal["mission", "run"]


def note(tx: Tx, owner_kind: Owner, owner_id: str, until_seq: int | None) -> None:
    """Note that records of an owner up to a position may not come back; None for all records."""
    tx.run(
        "INSERT INTO forgotten (noun, digest, until_seq) VALUES (:noun, :digest, :until)"
        " ON CONFLICT (noun, digest) DO UPDATE SET until_seq = excluded.until_seq",
        noun=owner_kind,
        digest=_digest(owner_id),
        until=until_seq,
    )
    tx.run(
        "INSERT INTO counters (name, value) VALUES (:name, 1)"
        " ON CONFLICT (name) DO UPDATE SET value = counters.value + 1",
        name=_COUNTER,
    )


def was_forgotten(tx: Tx, owner_kind: str, owner_id: str, seq: int) -> bool:
    """Return whether a mission or a run was forgotten, so that no old file may bring it back.

    ``seq`` is the position in the log at which a record of it was taken.
    """
    return tx.exists(
        "SELECT 1 AS there FROM forgotten WHERE noun = :noun AND digest = :digest"
        " AND (until_seq IS NULL OR until_seq >= :seq)",
        noun=owner_kind,
        digest=_digest(owner_id),
        seq=seq,
    )


def count(tx: Tx, ctx: Context) -> int:
    """Return how often something was forgotten; this is cheap enough to poll."""
    return tx.value("SELECT value FROM counters WHERE name = :name", name=_COUNTER) or 0


def forgotten_of(
    tx: Tx, ctx: Context, owner_kind: str, owner_ids: list[str]
) -> dict[str, int | None]:
    """Return the forgotten ones of some owners, each up to a position; None is for ever."""
    named = {_digest(owner_id): owner_id for owner_id in owner_ids}
    digests = list(named)
    rows = tx.all(
        "SELECT digest, until_seq FROM forgotten WHERE noun = :noun"
        f" AND digest IN ({inside_of('d', digests)})",
        noun=owner_kind,
        **named_params("d", digests),
    )
    return {named[row["digest"]]: row["until_seq"] for row in rows}


def _digest(owner_id: str) -> str:
    return hashlib.sha256(owner_id.encode()).hexdigest()
