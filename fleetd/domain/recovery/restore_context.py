"""Restore context: one recovery under way, and the report of what it did so far."""

import msgspec

from ...protocol.errors import InvalidParams
from ...protocol.records import Change, Checkpoint, Kept
from ...protocol.requests.recovery import RecoveryRestore
from ..core.context import Context
from ..core.ids import missing
from ..core.tx import Row, Tx


class RestoreReport(msgspec.Struct, kw_only=True):
    """What a recovery did so far."""

    changes: list[Change] = []
    kept: list[Kept] = []
    errors: list[str] = []
    warnings: list[str] = []
    blockers: list[tuple[str, str]] = []
    """What blocks whom: the agent, and the sentence."""
    released: list[str] = []
    messages: set[str] = set()
    """Messages that wait for somebody because of this recovery."""

    def changed(self, what: str, record_id: str, before: str, after: str) -> None:
        """Note one thing that is different now."""
        self.changes.append(Change(what=what, id=record_id, before=before, after=after))


class RestoreContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the steps of a recovery need."""

    tx: Tx
    ctx: Context
    request: RecoveryRestore
    checkpoint: Checkpoint
    report: RestoreReport = msgspec.field(default_factory=RestoreReport)
    repeated: bool = False
    """Whether the last recovery was from the same checkpoint, with nothing done since."""
    undoes: Row | None = None
    """The recovery that is undone, if it was a take-over whose successor has the work still."""

    @property
    def mission_id(self) -> str:
        """Return the mission that is recovered."""
        return self.checkpoint.mission_id

    @property
    def narrow(self) -> str | None:
        """Return the only agent whose part is restored, if it is only one's."""
        return self.request.agent_id if self.request.scope == "agent" else None

    @property
    def back_to(self) -> int | None:
        """Return the position in the log that everything goes back to, None without a rewind."""
        return self.checkpoint.seq if self.request.rewind else None

    def holder(self, name: str) -> str:
        """Return who gets what an agent of the checkpoint had: itself, or its successor."""
        if self.request.agent_id and name == self.request.take_over_from:
            return self.request.agent_id
        return name

    def gives_back(self, name: str) -> str | None:
        """Return who gives an agent its locks back: the successor whose take-over is undone."""
        if self.undoes and name == self.undoes["taken_over_from"]:
            return str(self.undoes["agent_id"])
        return None

    def covers(self, name: str | None) -> bool:
        """Whether something of this agent is restored."""
        return self.narrow is None or (name is not None and self.holder(name) == self.narrow)


def check(request: RecoveryRestore) -> None:
    """Refuse a request whose agents do not make sense; raises InvalidParams."""
    if request.scope == "agent" and request.force_locks:
        raise InvalidParams(
            "force_locks takes other agents' locks, and scope agent leaves them alone.",
            hint="Choose one of the two.",
            field="force_locks",
        )
    if request.agent_id is not None:
        if request.agent_id == request.take_over_from:
            raise InvalidParams(
                f"{request.agent_id} cannot take over from itself.",
                hint="To bring back its own part, use scope agent without take_over_from.",
                field="take_over_from",
            )
        return
    if request.take_over_from:
        raise InvalidParams(
            "take_over_from names a lost agent, but agent_id, its successor, is missing.",
            hint="Give the successor as agent_id.",
            field="agent_id",
        )
    if request.scope == "agent":
        raise InvalidParams(
            "scope is agent, but agent_id is missing.",
            hint="Say whose part is to be restored.",
            field="agent_id",
        )


def refuse_stranger(restore: RestoreContext, name: str) -> None:
    """Refuse a name that neither the store nor the checkpoint has ever heard; raises NotFound."""
    # One after the other: only of a name that nobody else knows are all sorties read.
    known = any(
        restore.tx.one(f"SELECT 1 AS known FROM {where} LIMIT 1", id=name)
        for where in (
            "agents WHERE id = :id",
            "locks WHERE held_by = :id",
            "deliveries WHERE agent_id = :id",
            "sorties WHERE assigned_to = :id",
        )
    )
    then = restore.checkpoint
    held = {lock.held_by for lock in then.active_locks} | {s.assigned_to for s in then.sorties}
    if not known and name not in held:
        raise missing("agent", name)
