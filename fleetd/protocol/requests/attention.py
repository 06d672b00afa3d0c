"""Requests about what agents do now, and what they need of a person."""

from typing import ClassVar, Literal

from ..records import Record
from ..request import Query
from ..types import AgentId, AgentNeed, AgentStatus, Limit, MissionId, RunningKind


class Doing(Record, frozen=True, kw_only=True):
    """The last thing that an agent did: a command, a tool, an edit or a prompt; since when."""

    what: Literal["command", "tool", "edit", "prompt", "answer"]
    text: str
    since: str
    ended: bool


class PlanStep(Record, frozen=True, kw_only=True):
    """The step that an agent works on: the second of five, and its title."""

    number: int
    total: int
    title: str


class RunningWork(Record, frozen=True, kw_only=True):
    """Something that runs for an agent: a subagent, a background shell, a teammate, a schedule.

    ``told`` is the first line of what it was asked, ``seen_at`` its last sign of life, ``output``
    the file that its output goes to.
    """

    id: str
    kind: RunningKind
    told: str | None
    began_at: str
    seen_at: str
    ended_at: str | None
    output: str | None


class AgentState(Record, frozen=True, kw_only=True):
    """What an agent does and what it needs, on one line.

    ``needs`` is ``none`` while it works. ``prompted_at`` is when a person spoke to it last.
    ``files_changed`` counts the files that it changed within the last hour. What it did, and when
    it was prompted, is looked for in its last 1,000 events. ``branch`` and ``worktree`` are those
    of ``cwd``; null without Git, and on another machine. ``running`` lists what runs for it, the
    newest first, at most 50; ``running_more`` counts the others.
    """

    agent_id: str
    harness: str | None
    session_id: str | None
    status: AgentStatus
    needs: AgentNeed | Literal["none"]
    since: str
    text: str | None
    reset_at: str | None
    prompted_at: str | None
    mission_id: str | None
    mission: str | None
    doing: Doing | None
    step: PlanStep | None
    files_changed: int
    window_tokens: int | None
    window_size: int | None
    cwd: str | None
    branch: str | None
    worktree: str | None
    machine: str | None
    running: list[RunningWork]
    running_more: int = 0


class AttentionPage(Record, frozen=True, kw_only=True):
    """Agents: the most urgent need first, then those that work, and ``finished`` last.

    Of equal ones, the first has waited longest, but of lost ones it is the newest. Agents that were
    lost more than a day ago are below those that work. ``more`` counts the agents behind ``limit``.
    """

    agents: list[AgentState]
    more: int


class AttentionList(Query[AttentionPage], frozen=True):
    """List what agents do and need; subagents are listed as ``running`` of their session's agent.

    With ``waiting`` only those that need a person: all but ``none``, ``finished`` and
    ``background``. Events of the type ``agent_needs`` tell each change.
    """

    method: ClassVar[str] = "attention.list"
    agent_id: AgentId | None = None
    mission_id: MissionId | None = None
    waiting: bool = False
    limit: Limit = 200


class ConflictEdit(Record, frozen=True, kw_only=True):
    """The last change of a file by one agent; ``path`` is the file's real path.

    ``machine`` names the agent's machine where that is another one.
    """

    agent_id: str
    path: str
    at: str
    machine: str | None


class EditConflict(Record, frozen=True, kw_only=True):
    """A file that several living agents changed within the last hour, the newest change first.

    ``file`` is its path inside the repository, outside of one the real path. With ``at_merge`` the
    agents changed it in different worktrees or clones: the changes meet at the merge.
    """

    file: str
    at_merge: bool
    edits: list[ConflictEdit]


class OutsideEdit(Record, frozen=True, kw_only=True):
    """The last change of a file that an agent made in a work tree of Git that is not its own.

    ``path`` is the file's real path, ``worktree`` the root of the tree around it, and ``began_in``
    that of the tree in which the agent's session began.
    """

    agent_id: str
    path: str
    worktree: str
    began_in: str
    at: str
    machine: str | None


class ConflictPage(Record, frozen=True, kw_only=True):
    """Files that several agents changed, the newest change first; ``more`` counts the others.

    ``outside`` are changes outside of the agents' own work trees, at most 200.
    """

    conflicts: list[EditConflict]
    more: int
    outside: list[OutsideEdit] = []


class AttentionConflicts(Query[ConflictPage], frozen=True):
    """List the files that several living agents changed within the last hour.

    One file in two worktrees or clones of a repository counts as one. A subagent counts as the
    agent of its session. With ``agent_id`` only the files that this agent changed too.
    """

    method: ClassVar[str] = "attention.conflicts"
    agent_id: AgentId | None = None
    limit: Limit = 50
