"""The request for a report: what an agent or a mission was asked, did, decided and left open."""

from typing import ClassVar, Literal

from ..records import Agent, CheckpointSummary, Lock, Mission, Note, Record, Recovery
from ..request import Query
from ..types import AgentId, MissionId, SortieStatus, Timestamp
from .stats import CompactionEffect


class ReportPrompt(Record, frozen=True, kw_only=True):
    """A prompt of a person, cut to 2,000 characters."""

    at: str
    agent_id: str | None
    text: str


class ReportSortie(Record, frozen=True, kw_only=True):
    """A sortie as a report has it; ``author`` is the agent that wrote the title."""

    id: str
    mission_id: str
    title: str
    status: SortieStatus
    assigned_to: str | None
    author: str | None
    progress: int
    progress_notes: str | None
    blocked_reason: str | None
    result: str | None
    started_at: str | None
    completed_at: str | None
    updated_at: str


class ReportFile(Record, frozen=True, kw_only=True):
    """A file that agents changed, and how often."""

    file: str
    changes: int
    agents: list[str]
    last_at: str


class ReportCommand(Record, frozen=True, kw_only=True):
    """A command that agents ran, and how it ended.

    Runs that neither ``passed`` nor ``failed`` ended with no known result. ``result`` and ``error``
    are those of the last run. ``test`` marks a command that runs tests, judged by its words.
    """

    command: str
    runs: int
    passed: int
    failed: int
    result: Literal["PASS", "FAIL"] | None
    error: str | None
    test: bool
    agents: list[str]
    last_at: str


class ReportCommit(Record, frozen=True, kw_only=True):
    """A ``git commit`` that an agent ran; ``result`` is null if it is not known."""

    at: str
    agent_id: str | None
    command: str
    result: Literal["PASS", "FAIL"] | None


class ReportError(Record, frozen=True, kw_only=True):
    """An error that an agent met."""

    at: str
    agent_id: str | None
    name: str
    message: str


class ReportAgent(Record, frozen=True, kw_only=True):
    """An agent's part: ``agent`` is null if its record is gone.

    ``calls`` counts tool calls, commands among them, and ``failed`` those that failed. ``changes``
    counts changes of files. ``active_ms`` is its time at work: between two events at most five
    minutes, an hour in a tool call, and nothing while it waits for its user. ``last_answer`` is
    what it said last, cut to 2,000 characters.
    """

    agent_id: str
    agent: Agent | None
    first_at: str | None
    last_at: str | None
    calls: int
    failed: int
    changes: int
    active_ms: int
    last_answer: str | None


class ReportOpen(Record, frozen=True, kw_only=True):
    """What is left to do, as a briefing has it now; empty for a mission that is over.

    ``locks`` are in force, and ``conflicts`` the files that another living agent changed too.
    """

    next_steps: list[str] = []
    blockers: list[str] = []
    locks: list[Lock] = []
    conflicts: list[str] = []


class ReportOmitted(Record, frozen=True, kw_only=True):
    """How many older or further items a list of the report leaves out."""

    asked: int = 0
    planned: int = 0
    files: int = 0
    commands: int = 0
    commits: int = 0
    decided: int = 0
    errors: int = 0
    agents: int = 0
    compactions: int = 0
    recoveries: int = 0
    checkpoints: int = 0


class Report(Record, frozen=True, kw_only=True):
    """What an agent or a mission was asked, planned, did, decided and left open.

    One of ``agent`` and ``mission`` is its subject. ``missions`` are the mission with those merged
    into it, or those that the agent worked in. Lists are in the order of time, except ``files`` and
    ``commands``, which begin with the newest; of a long list the newest are kept, and ``omitted``
    counts the others. ``first_at`` and ``last_at`` are those of the events that are still in the
    log; ``active_ms`` is the time at work of all agents together.
    """

    generated_at: str
    position: int
    agent: Agent | None
    mission: Mission | None
    missions: list[Mission]
    first_at: str | None
    last_at: str | None
    elapsed_ms: int
    active_ms: int
    agents: list[ReportAgent]
    asked: list[ReportPrompt]
    planned: list[ReportSortie]
    files: list[ReportFile]
    commands: list[ReportCommand]
    commits: list[ReportCommit]
    decided: list[Note]
    left_open: ReportOpen
    errors: list[ReportError]
    compactions: list[CompactionEffect]
    recoveries: list[Recovery]
    checkpoints: list[CheckpointSummary]
    omitted: ReportOmitted


class ReportGet(Query[Report], frozen=True):
    """Report what an agent or a mission was asked, did, decided and left open.

    Give one of the two. The report is read from records and from the event log, as far back as the
    log goes. With ``until`` it is the report of that moment.
    """

    method: ClassVar[str] = "report.get"
    mission_id: MissionId | None = None
    agent_id: AgentId | None = None
    until: Timestamp | None = None
