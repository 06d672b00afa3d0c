"""What the files of a mission's checkpoints must hold, for a machine that keeps none of them.

Must not care who keeps which. Nothing here but ``checkpoint.pull`` is on the wire.
"""

from ...protocol.records import Record
from ...protocol.request import Query
from ..core.context import Context
from ..core.registry import handler
from ..core.tx import Tx
from .kinds import POLICIES
from ..core.soft_delete import LIVE

AT_ONCE = 100


class PullPlace(Record, frozen=True, kw_only=True):
    """How far a mission's checkpoints were looked through, from the newest on."""

    seq: int = 2**62
    checkpoint_id: str = ""


class ToPull(Record, frozen=True, kw_only=True):
    """Some of a mission's checkpoints, newest first, and where to look further.

    ``nameable`` are those that ``latest.json`` may be.
    """

    ids: list[str]
    nameable: frozenset[str]
    place: PullPlace | None


class PullLook(Query[ToPull], frozen=True):
    """Ask for the next of a mission's checkpoints."""

    mission_id: str
    place: PullPlace


class Content(Record, frozen=True, kw_only=True):
    """What a file must hold; None when its checkpoint was deleted."""

    data: bytes | None


class ContentGet(Query[Content], frozen=True):
    """Ask what the file of a checkpoint must hold; raises Corrupt for a damaged row."""

    checkpoint_id: str


@handler
def look(tx: Tx, ctx: Context, request: PullLook) -> ToPull:
    """Return some names, without touching the content."""
    rows = tx.all(
        f"SELECT id, seq, undo FROM checkpoints WHERE mission_id = :mission AND {LIVE}"
        " AND (seq, id) < (:seq, :id) ORDER BY seq DESC, id DESC LIMIT :most",
        mission=request.mission_id,
        seq=request.place.seq,
        id=request.place.checkpoint_id,
        most=AT_ONCE,
    )
    last = rows[-1] if len(rows) == AT_ONCE else None
    return ToPull(
        ids=[row["id"] for row in rows],
        nameable=frozenset(row["id"] for row in rows if not row["undo"]),
        place=PullPlace(seq=last["seq"], checkpoint_id=last["id"]) if last else None,
    )


@handler
def content(tx: Tx, ctx: Context, request: ContentGet) -> Content:
    """Return the bytes that the daemon which keeps the file writes; its checksum was compared."""
    row = tx.one(f"SELECT * FROM checkpoints WHERE id = :id AND {LIVE}", id=request.checkpoint_id)
    return Content(data=POLICIES["checkpoint"].file_of(row) if row else None)
