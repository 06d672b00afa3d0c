"""How many files the rows still owe the disk; must not name them."""

from ...protocol.records import Record
from ...protocol.request import Query
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Tx
from .kinds import POLICIES
from ..core.soft_delete import LIVE, OWED


class Backlog(Record, frozen=True, kw_only=True):
    """How many checkpoints and snapshots have no file yet."""

    files: int


class BacklogGet(Query[Backlog], frozen=True):
    """Ask how far the files are behind; not on the wire."""


@handler
def backlog(tx: Tx, ctx: Context, request: BacklogGet) -> Backlog:
    """Count, from an index of what is not written yet."""
    return Backlog(files=unwritten(tx, ctx))


def unwritten(tx: Tx, ctx: Context) -> int:
    """Return how many records wait for their file on this machine."""
    # By the outbox's index: by that of the live ones, every record would be read.
    return sum(
        tx.value(
            f"SELECT count(*) FROM {policy.table} WHERE {OWED} AND {LIVE}", machine=ctx.machine
        )
        for policy in POLICIES.values()
    )
