"""Requests about locks."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Lock, Record
from ..request import Mutation, Query
from ..types import AgentId, LeaseMs, Limit, LockId, Milliseconds, MissionId, Path, Text

Purpose = Annotated[str, Meta(min_length=1, max_length=200)]


class LockAcquire(Mutation[Lock], frozen=True):
    """Take a lease on a file, which need not be there yet; acquiring one's own lock renews it.

    A directory is refused. A relative ``file`` needs ``cwd`` or a mission with a project directory.
    Waits up to ``wait_ms`` in order of arrival, then fails with ``lock_conflict``.
    """

    method: ClassVar[str] = "lock.acquire"
    file: Path
    agent_id: AgentId
    mission_id: MissionId | None = None
    cwd: Path | None = None
    purpose: Purpose = "edit"
    timeout_ms: LeaseMs | None = None
    wait_ms: Milliseconds = 0


class LockRenew(Mutation[Lock], frozen=True):
    """Prolong one's own lease."""

    method: ClassVar[str] = "lock.renew"
    lock_id: LockId
    agent_id: AgentId
    timeout_ms: LeaseMs | None = None


class LockRelease(Mutation[Lock], frozen=True):
    """Give one's own lock back."""

    method: ClassVar[str] = "lock.release"
    lock_id: LockId
    agent_id: AgentId


class LockForceRelease(Mutation[Lock], frozen=True):
    """Take a lock away from its holder."""

    method: ClassVar[str] = "lock.force_release"
    lock_id: LockId
    agent_id: AgentId
    reason: Text


class Validity(Record, frozen=True, kw_only=True):
    """Whether a fencing token still guards its file."""

    valid: bool


class LockCheck(Query[Validity], frozen=True):
    """Ask whether a fencing token is the one in force for a file, given as an absolute path."""

    method: ClassVar[str] = "lock.check"
    file: Path
    fencing_token: Annotated[int, Meta(ge=0)]


class LockPage(Record, frozen=True, kw_only=True):
    """Locks, oldest first.

    ``paths`` says by the id of each lock what its file is called for who asked from ``cwd``.
    """

    locks: list[Lock]
    paths: dict[LockId, str] = {}


class LockList(Query[LockPage], frozen=True):
    """List locks, oldest first; without ``active`` also those that ended.

    With ``cwd`` the answer says what each file is called there: by its path inside the repository
    around it, else by one that begins with ``~/`` or ``/``, or by the key. ``here`` leaves only
    what lies in that repository. ``after`` is the last one of the page before.
    """

    method: ClassVar[str] = "lock.list"
    mission_id: MissionId | None = None
    held_by: AgentId | None = None
    file: Path | None = None
    active: bool = True
    limit: Limit = 1_000
    after: LockId | None = None
    cwd: Path | None = None
    here: bool = False
