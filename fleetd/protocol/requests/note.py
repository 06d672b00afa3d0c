"""Requests about notes that last."""

from typing import ClassVar

from ..records import Note, Record
from ..request import Mutation, Query
from ..types import AgentId, Limit, MissionId, NoteId, NoteKind, NoteText, Path


class NoteAdd(Mutation[Note], frozen=True):
    """Add a note to an open mission; the same note of the same author is added once.

    Without ``mission_id`` it goes to the mission that ``cwd`` belongs to.
    """

    method: ClassVar[str] = "note.add"
    kind: NoteKind
    text: NoteText
    because: NoteText | None = None
    path: Path | None = None
    mission_id: MissionId | None = None
    cwd: Path | None = None
    agent_id: AgentId | None = None


class NotePage(Record, frozen=True, kw_only=True):
    """Notes in the order in which they were added."""

    notes: list[Note]


class NoteList(Query[NotePage], frozen=True):
    """List notes, oldest first; ``withdrawn`` also lists those that were withdrawn.

    With ``newest`` the newest comes first. ``after`` is the last one of the previous page.
    """

    method: ClassVar[str] = "note.list"
    mission_id: MissionId | None = None
    kind: NoteKind | None = None
    agent_id: AgentId | None = None
    withdrawn: bool = False
    limit: Limit = 1_000
    after: NoteId | None = None
    newest: bool = False


class NoteGet(Query[Note], frozen=True):
    """Return a note, also one that was withdrawn."""

    method: ClassVar[str] = "note.get"
    note_id: NoteId


class NoteWithdraw(Mutation[Note], frozen=True):
    """Withdraw a note. An agent withdraws its own notes only, a person withdraws any."""

    method: ClassVar[str] = "note.withdraw"
    note_id: NoteId
    reason: NoteText
    agent_id: AgentId | None = None


class NotePin(Mutation[Note], frozen=True):
    """Pin a note, so that it comes first in each briefing of its mission.

    Only a person can: a call from an agent is refused. ``pinned`` false removes the pin.
    """

    method: ClassVar[str] = "note.pin"
    note_id: NoteId
    pinned: bool = True
    agent_id: AgentId | None = None
