"""Context of a rule: time, ids, the caller, settings, and facts from outside the store."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ...config import Config
from ...protocol.timestamps import iso
from ...protocol.types import CommitId, Path, Text

NewId = Callable[[str], str]
LockScope = Literal["machine", "project"]


class Caller(msgspec.Struct, frozen=True):
    """Who asks: a client with its credentials, or the daemon itself."""

    kind: Literal["client", "daemon"]
    uid: int
    pid: int | None = None
    hook: bool = False
    """Whether it asks for the agent behind a hook, which reads the answer."""


class TranscriptMark(msgspec.Struct, frozen=True):
    """What shows that a transcript was written anew: its size in bytes and its beginning.

    ``size`` is 0 where it says nothing, ``head`` None where it cannot be told.
    """

    size: int
    head: str | None


class Here(msgspec.Struct, frozen=True):
    """Where somebody reads of files; what is not known is empty."""

    root: str = ""
    """The directory below which files are told without it: a project's root; a real path."""
    place: str = ""
    """The root of the repository, else the directory: lists can be limited to it; a real path."""
    project: str = ""
    """How the keys of locks on its files begin when they are shared by project."""
    home: str = ""


class EditedFile(msgspec.Struct, frozen=True):
    """A file that an agent changed: where it is, and what it is called in all worktrees."""

    path: str
    """The real path, as the key of a lock has it."""
    place: str
    """The key of the project's file; the path where no project is known."""
    name: str
    """The path inside the repository, else the real path."""
    worktree: str | None = None
    """The root of the work tree around it; a real path."""
    linked: bool = False
    """Whether that is one of those that ``git worktree add`` makes."""


class WorkingTree(msgspec.Struct, frozen=True):
    """What Git says of a working tree; names are in quotes, and without secrets."""

    branch: str
    """The branch and what it follows, in Git's words."""
    commit: str = ""
    """The newest commit: hash, author and subject; empty where there is none."""
    changed: tuple[str, ...] = ()
    """Changed files as ``git status --porcelain`` has them, relative to the root."""
    more: int = 0
    """How many more files are changed."""


class Checkout(msgspec.Struct, frozen=True):
    """What is checked out where a session is, as far as the files of Git tell it."""

    worktree: Path | None = None
    """The root of the work tree; None outside of any."""
    branch: Text | None = None
    """The branch; None where a commit is checked out, and where it is not known."""
    head: CommitId | None = None
    """The commit; None before the first, and where it is not known."""


class Facts(msgspec.Struct, frozen=True):
    """What was gathered from outside the store before the rule ran."""

    lock_key: str | None = None
    """What the target of a lock request is called by everybody who may mean it."""
    other_keys: tuple[str, ...] = ()
    """What else a file may be called in a lock."""
    lock_scope: LockScope | None = None
    """The locks of which missions have such keys; None for a key that the request itself gives."""
    lock_directory: str | None = None
    """The key of the directory that a lock request covers, or whose files its pattern matches."""
    worktree_keys: tuple[str, ...] = ()
    """How the keys of all files in a working tree begin: by their paths, and by project."""
    ancestors: tuple[tuple[int, str | None], ...] = ()
    """The processes above the caller, the nearest first, each with when it was started."""
    mission_id: str | None = None
    """The mission that the request's directory belongs to."""
    pid_started: str | None = None
    """When the process that registers was started, in the kernel's own words."""
    dead_agents: frozenset[str] = frozenset()
    """Agents of the mission whose process is gone."""
    unreadable: dict[str, str] = {}
    """Checkpoints of which no copy can be used, and why, in a sentence."""
    working_tree: WorkingTree | None = None
    """What Git says of the directory in which the agent works that is briefed."""
    agent_pid: int | None = None
    """The process of the agent whose hook reports."""
    harness_version: str | None = None
    """The version of the harness whose hook reports, where only its transcript tells it."""
    project_root: str | None = None
    """The root of the repository that a session works in, else its directory."""
    places: tuple[str, ...] = ()
    """What the directory is called on every machine of a shared store, then those above it."""
    here: Here = Here()
    """Where the reader of the answer is, who sees the files of locks from there."""
    transcript_mark: TranscriptMark | None = None
    """What the session's transcript looks like now."""
    edited: dict[str, EditedFile | None] = {}
    """The files that a hook says were changed, by those names; None for one to be passed over."""


class BatchSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much one transaction looks at or changes, so that nobody waits long behind it.

    No user sets them; tests make them small, so that a few rows are many batches.
    """

    rows: int = 250
    """Rows of a large table, such as events, locks and missions."""
    looked_at: int = 1_000
    """Events of an agent that a page looks at for those of a type or a mission.

    An index for that would cost something with each event that is appended.
    """
    kept_answers: int = 500
    """Answers and deliveries that are kept for repeated requests."""
    records: int = 25
    """Checkpoints or snapshots that are judged, marked, removed or verified with their files."""
    owners: int = 20
    """Missions or runs whose records one batch of a pruning looks through."""
    surplus: int = 20
    """Records above a limit that one new record removes."""
    closed_missions: int = 10
    pulled: int = 100
    """Checkpoints whose names a pull learns."""
    compressed: int = 50
    verified_daily: int = 500
    """Files that a daily verification takes at most."""
    search_ms: int = 2_000
    """How long one statement of a search may take."""
    listed_cursors: int = 50
    """Cursors that the doctor names."""


class Context(msgspec.Struct, frozen=True):
    """Sampled once per request. ``now_ms`` is milliseconds since the Unix epoch.

    ``awake_ms`` counts how long the machine has been awake in the boot ``boot_id``: silence is
    measured by it, since nobody steps it and a suspended machine does not move it.
    """

    now_ms: int
    awake_ms: int
    boot_id: str
    new_id: NewId
    caller: Caller
    config: Config
    facts: Facts = Facts()
    machine: str = ""
    """This machine, in a store that several share; empty in one that it has to itself."""
    elapsed_ms: Callable[[], int] = lambda: 0
    """How long the request has been at work, by a clock that is never stepped."""
    batches: BatchSizes = BatchSizes()

    @property
    def shared(self) -> bool:
        """Whether other machines may have the store too, where a path is another file."""
        return self.machine != ""

    def is_here(self, row: dict[str, Any]) -> bool:
        """Whether a row is this machine's: an agent or a mission there, a record with its file."""
        return bool(row["machine"] == self.machine)

    @property
    def now(self) -> str:
        """Return the time of the request as ISO 8601 UTC."""
        return iso(self.now_ms)

    def at(self, offset_ms: int) -> str:
        """Return the time ``offset_ms`` after the request (before it, when negative)."""
        return iso(self.now_ms + offset_ms)

    def days_ago(self, days: int) -> str:
        """Return the time so many days before the request."""
        return self.at(-days * 86_400_000)
