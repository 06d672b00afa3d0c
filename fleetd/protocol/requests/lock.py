"""Requests about locks on files, directories and patterns."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..records import Lock, Record
from ..request import Mutation, Query
from ..types import (
    CLEAN_PATH,
    AgentId,
    LeaseMs,
    Limit,
    LockId,
    LockMode,
    Milliseconds,
    MissionId,
    Path,
    Text,
)

Purpose = Annotated[str, Meta(min_length=1, max_length=200)]
Pattern = Annotated[str, Meta(min_length=1, max_length=1_000, pattern=CLEAN_PATH)]


class LockAcquire(Mutation[Lock], frozen=True):
    """Take a lease on a file, which may not exist yet; acquiring one's own lock renews it.

    A ``file`` that is a directory, or ends with a slash, covers all in it. A ``pattern`` covers the
    files that match it in the syntax of gitignore, seen from ``cwd``: it must stay inside the
    repository around that. Only with ``all`` may a lease cover a whole repository. ``shared``
    leases exclude exclusive ones, but not each other.

    What is relative needs ``cwd`` or a mission with a project directory. Waits up to ``wait_ms`` in
    order of arrival, then fails with ``lock_conflict``.
    """

    method: ClassVar[str] = "lock.acquire"
    agent_id: AgentId
    file: Path | None = None
    pattern: Pattern | None = None
    mode: LockMode = "exclusive"
    mission_id: MissionId | None = None
    cwd: Path | None = None
    purpose: Purpose = "edit"
    timeout_ms: LeaseMs | None = None
    wait_ms: Milliseconds = 0
    all: bool = False


class LockRenew(Mutation[Lock], frozen=True):
    """Renew one's own lease."""

    method: ClassVar[str] = "lock.renew"
    lock_id: LockId
    agent_id: AgentId
    timeout_ms: LeaseMs | None = None


class LockRelease(Mutation[Lock], frozen=True):
    """Release one's own lock."""

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
    """Whether a fencing token is that of a lease on a file, and all leases that cover the file.

    ``valid`` is None where no token was given. ``paths`` gives the name of what each lock is on as
    seen from ``cwd``, by the lock's id.
    """

    valid: bool | None
    locks: list[Lock] = []
    paths: dict[LockId, str] = {}


class LockCheck(Query[Validity], frozen=True):
    """Name the leases that cover a file, given as an absolute path; check a fencing token for it.

    A token is valid as long as its lease covers the file, whatever else does.
    """

    method: ClassVar[str] = "lock.check"
    file: Path
    fencing_token: Annotated[int, Meta(ge=0)] | None = None
    cwd: Path | None = None


class LockPage(Record, frozen=True, kw_only=True):
    """Locks, oldest first.

    ``paths`` gives the name of each lock's file as seen from ``cwd``, by the lock's id.
    """

    locks: list[Lock]
    paths: dict[LockId, str] = {}


class LockList(Query[LockPage], frozen=True):
    """List locks, oldest first; without ``active`` also those that ended.

    With ``cwd`` the answer names each file as seen from there: by its path inside the repository
    around it, else by a path that begins with ``~/`` or ``/``, or by the key. ``here`` selects
    files of that repository. ``after`` is the last one of the previous page. ``file`` and
    ``pattern``, which is seen from ``cwd``, select the locks on just that; ``lock.check`` names all
    that cover a file.
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
    pattern: Pattern | None = None
