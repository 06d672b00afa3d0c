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
    """The source of a request: a client with its credentials, or the daemon itself."""

    kind: Literal["client", "daemon"]
    uid: int
    pid: int | None = None
    hook: bool = False
    """Whether it asks for the agent behind a hook, which reads the answer."""


class TranscriptMark(msgspec.Struct, frozen=True):
    """What shows that a transcript was rewritten: its size in bytes and its beginning.

    ``size`` is 0 where it says nothing; ``head`` is None where it is unknown.
    """

    size: int
    head: str | None


class Here(msgspec.Struct, frozen=True):
    """The place from which a reader sees files; unknown fields are empty."""

    root: str = ""
    """A project's root, which is left out of the names of files below it; a real path."""
    place: str = ""
    """The root of the repository, else the directory: lists can be limited to it; a real path."""
    project: str = ""
    """The prefix of the keys of locks on its files when they are shared by project."""
    home: str = ""


class EditedFile(msgspec.Struct, frozen=True):
    """A file that an agent changed: its place, and its name in all worktrees."""

    path: str
    """The real path, as in the key of a lock."""
    place: str
    """The key of the project's file; the path where no project is known."""
    name: str
    """The path inside the repository, else the real path."""
    worktree: str | None = None
    """The root of the work tree around it; a real path."""
    linked: bool = False
    """Whether ``git worktree add`` made that work tree."""


class WorkingTree(msgspec.Struct, frozen=True):
    """What Git reports of a working tree; names are in quotes, and without secrets."""

    branch: str
    """The branch and what it follows, in Git's words."""
    commit: str = ""
    """The newest commit: hash, author and subject; empty where there is none."""
    changed: tuple[str, ...] = ()
    """Changed files as ``git status --porcelain`` has them, relative to the root."""
    more: int = 0
    """How many more files are changed."""


class Checkout(msgspec.Struct, frozen=True):
    """What is checked out at a session's directory, as far as Git's files show it."""

    worktree: Path | None = None
    """The root of the work tree; None outside of any."""
    branch: Text | None = None
    """The branch; None where a commit is checked out, and where it is not known."""
    head: CommitId | None = None
    """The commit; None before the first, and where it is not known."""


class Facts(msgspec.Struct, frozen=True):
    """Facts gathered from outside the store before the rule ran."""

    lock_key: str | None = None
    """The key of a lock request's target, the same for everybody who may mean it."""
    other_keys: tuple[str, ...] = ()
    """Other keys that a lock may have for the file."""
    lock_scope: LockScope | None = None
    """Which missions' locks have such keys; None for a key that the request itself gives."""
    lock_directory: str | None = None
    """The key of the directory that a lock request covers, or whose files its pattern matches."""
    worktree_keys: tuple[str, ...] = ()
    """The prefixes of the keys of all files in a working tree: by path, and by project."""
    ancestors: tuple[tuple[int, str | None], ...] = ()
    """The processes above the caller, the nearest first, each with its start time."""
    mission_id: str | None = None
    """The mission that the request's directory belongs to."""
    pid_started: str | None = None
    """The start time of the process that registers, as the kernel reports it."""
    dead_agents: frozenset[str] = frozenset()
    """Agents of the mission whose process is gone."""
    unreadable: dict[str, str] = {}
    """Checkpoints without a usable copy, each with the reason as a sentence."""
    working_tree: WorkingTree | None = None
    """What Git reports of the working directory of the agent that is briefed."""
    agent_pid: int | None = None
    """The process of the agent whose hook reports."""
    harness_version: str | None = None
    """The version of the harness whose hook reports, where only its transcript has it."""
    project_root: str | None = None
    """The root of the repository that a session works in, else its directory."""
    places: tuple[str, ...] = ()
    """The name of the directory on every machine of a shared store, then of those above it."""
    here: Here = Here()
    """The place of the answer's reader, from which the files of locks are named."""
    transcript_mark: TranscriptMark | None = None
    """What the session's transcript looks like now."""
    edited: dict[str, EditedFile | None] = {}
    """The changed files that a hook reports, by the reported names; None for one to skip."""


class BatchSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much one transaction reads or changes, so that no other waits long for it.

    Users cannot set these; tests make them small, so that a few rows are many batches.
    """

    rows: int = 250
    """Rows of a large table, such as events, locks and missions."""
    looked_at: int = 1_000
    """Events of an agent that a page reads to find those of a type or a mission.

    An index for that would make every append more expensive.
    """
    kept_answers: int = 500
    """Answers and deliveries that are kept for repeated requests."""
    records: int = 25
    """Checkpoints or snapshots that are judged, marked, removed or verified with their files."""
    owners: int = 20
    """Missions or runs whose records one batch of a pruning reads."""
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

    ``awake_ms`` counts how long the machine has been awake in the boot ``boot_id``. Silence is
    measured by it, since nobody steps that clock and it stops while the machine is suspended.
    """

    now_ms: int
    awake_ms: int
    boot_id: str
    new_id: NewId
    caller: Caller
    config: Config
    facts: Facts = Facts()
    machine: str = ""
    """This machine, in a store that several share; empty in a store of its own."""
    elapsed_ms: Callable[[], int] = lambda: 0
    """How long the request has been running, by a clock that is never stepped."""
    batches: BatchSizes = BatchSizes()

    @property
    def shared(self) -> bool:
        """Return whether other machines may use the store, on which a path means another file."""
        return self.machine != ""

    def is_here(self, row: dict[str, Any]) -> bool:
        """Return whether a row is this machine's: an agent, a mission, a record with its file."""
        return bool(row["machine"] == self.machine)

    @property
    def now(self) -> str:
        """Return the time of the request as ISO 8601 UTC."""
        return iso(self.now_ms)

    def at(self, offset_ms: int) -> str:
        """Return the time ``offset_ms`` after the request (before it, when negative)."""
        return iso(self.now_ms + offset_ms)

    def days_ago(self, days: int) -> str:
        """Return the time ``days`` days before the request."""
        return self.at(-days * 86_400_000)
