"""Requests about the sessions of agent CLIs."""

from typing import ClassVar, Literal

from ..records import Record
from ..request import Query
from ..types import AgentId, AgentStatus, Limit, MissionId

Ending = Literal["closed", "vanished", "lost"]


class Place(Record, frozen=True, kw_only=True):
    """What is checked out in a directory: the root of the work tree, the branch, the commit.

    ``branch`` is null where a commit is checked out. All are null without Git, and where they are
    not known.
    """

    worktree: str | None
    branch: str | None
    head: str | None


class PlaceNow(Place, frozen=True, kw_only=True):
    """What a session's directories are now.

    ``directory_exists`` is about the directory that it is opened again in. The rest is about the
    directory where it was last, if ``cwd_exists``.
    """

    directory_exists: bool
    cwd_exists: bool


class Session(Record, frozen=True, kw_only=True):
    """The session of an agent: where it began, and what its directory was at its last sign.

    ``ended`` is null while it may go on, ``closed`` after its CLI said that it ended, ``vanished``
    when its process ended while it waited for a prompt, and ``lost`` when its agent was lost.
    ``alive`` says that its process runs, or, of one whose process nobody knows, that it was heard
    of lately. ``directory`` is where its CLI was started, ``cwd`` where it was last, and ``place``
    what was checked out there then; ``now`` what it is now, null where this machine does not know.
    ``machine`` names its machine where that is another one, ``succeeded_by`` the agent that took
    over its work.
    """

    harness: str
    session_id: str
    agent_id: str
    status: AgentStatus
    ended: Ending | None
    alive: bool
    mission_id: str | None
    mission: str | None
    started_at: str
    last_event_at: str
    directory: str | None
    cwd: str | None
    place: Place
    now: PlaceNow | None = None
    machine: str | None = None
    succeeded_by: str | None = None


class SessionPage(Record, frozen=True, kw_only=True):
    """Sessions by the ids of their agents; ``after`` asks for the next page, null on the last."""

    sessions: list[Session]
    after: str | None = None


class SessionList(Query[SessionPage], frozen=True):
    """List the current session of each agent, without those of subagents.

    ``cut_off`` lists those of the last 7 days that are lost or vanished and that no other agent
    took over; ``lost`` only the lost ones, of any age; ``all`` lists every session. An agent or a
    mission that is named is listed with all its sessions, unless ``which`` says otherwise.
    """

    method: ClassVar[str] = "session.list"
    which: Literal["cut_off", "lost", "all"] = "all"
    agent_id: AgentId | None = None
    mission_id: MissionId | None = None
    limit: Limit = 200
    after: AgentId | None = None
