"""What was forgotten and must not come back out of a file, by digests; must not decide what goes.

A mission or a run is named by the digest of its id: the id is forgotten too. Daemons on other
machines learn here that files of theirs have to go. What is no handler's is for other rules.
"""

import hashlib
from typing import Literal

from ...protocol.records import Record
from ...protocol.request import Query
from ...protocol.types import Noun
from ..artifacts.kinds import POLICIES
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Tx
from .clauses import inside_of, named_params

_COUNTER = "forgotten"


class ForgottenCount(Record, frozen=True, kw_only=True):
    """How often something was forgotten in this store; another figure says that more was."""

    count: int


class ForgottenCountGet(Query[ForgottenCount], frozen=True):
    """Ask how often something was forgotten."""


class ForgottenOwners(Record, frozen=True, kw_only=True):
    """Missions or runs that were forgotten, up to which position in the log; None is for ever."""

    until: dict[str, int | None]


class ForgottenOwnersGet(Query[ForgottenOwners], frozen=True):
    """Ask which of some owners were forgotten."""

    noun: Noun
    owner_ids: list[str]


def note(tx: Tx, whose: Literal["mission", "run"], owner_id: str, until_seq: int | None) -> None:
    """Note that nothing of an owner from before a position may come back, or nothing ever."""
    tx.run(
        "INSERT INTO forgotten (noun, digest, until_seq) VALUES (:noun, :digest, :until)"
        " ON CONFLICT (noun, digest) DO UPDATE SET until_seq = excluded.until_seq",
        noun=whose,
        digest=_digest(owner_id),
        until=until_seq,
    )
    tx.run(
        "INSERT INTO counters (name, value) VALUES (:name, 1)"
        " ON CONFLICT (name) DO UPDATE SET value = counters.value + 1",
        name=_COUNTER,
    )


def was_forgotten(tx: Tx, whose: str, owner_id: str, seq: int) -> bool:
    """Whether a mission or a run was forgotten, so that no file of before may bring it back.

    ``seq`` is where in the log a record of it was taken.
    """
    found = tx.one(
        "SELECT 1 AS there FROM forgotten WHERE noun = :noun AND digest = :digest"
        " AND (until_seq IS NULL OR until_seq >= :seq)",
        noun=whose,
        digest=_digest(owner_id),
        seq=seq,
    )
    return found is not None


@handler
def count(tx: Tx, ctx: Context, request: ForgottenCountGet) -> ForgottenCount:
    """Return how often something was forgotten, which is cheap to ask again and again."""
    value = tx.value("SELECT value FROM counters WHERE name = :name", name=_COUNTER)
    return ForgottenCount(count=value or 0)


@handler
def owners(tx: Tx, ctx: Context, request: ForgottenOwnersGet) -> ForgottenOwners:
    """Return those that were forgotten."""
    named = {_digest(owner_id): owner_id for owner_id in request.owner_ids}
    digests = list(named)
    rows = tx.all(
        "SELECT digest, until_seq FROM forgotten WHERE noun = :noun"
        f" AND digest IN ({inside_of('d', digests)})",
        noun=POLICIES[request.noun].whose,
        **named_params("d", digests),
    )
    return ForgottenOwners(until={named[row["digest"]]: row["until_seq"] for row in rows})


def _digest(owner_id: str) -> str:
    return hashlib.sha256(owner_id.encode()).hexdigest()
