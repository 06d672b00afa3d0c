"""Requests about the tokens that requests to models took, as transcripts of sessions tell."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ..records import Record
from ..request import Mutation, Query
from ..types import AgentId, MissionId, Timestamp

UsageBy = Literal["agent", "sortie", "mission", "model", "day"]
TimeZone = Annotated[str, Meta(min_length=1, max_length=64, examples=["Europe/Berlin"])]
BudgetTokens = Annotated[int, Meta(ge=1, le=10**15)]
BudgetCents = Annotated[int, Meta(ge=1, le=10**12)]


class ModelUsage(Record, frozen=True, kw_only=True):
    """What requests to one model took, in tokens.

    ``input_tokens`` are those that were neither read from a cache nor written to one.
    ``output_tokens`` include the reasoning, and ``cache_write_tokens`` what is kept for an hour.
    Prices of some models depend on how much one request has of input: these are requests of
    ``from_input_tokens`` up to the next such limit, and of one day in UTC, since prices change.
    ``model`` is null where it is not told.
    """

    harness: str
    model: str | None
    from_input_tokens: int
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    reasoning_tokens: int
    first_at: str
    last_at: str


class UsageGroup(Record, frozen=True, kw_only=True):
    """What was taken by an agent, a sortie, a mission, a model, or on a day.

    ``name`` is an id, the name of a model, or a date; null for requests of no mission or sortie, or
    of a model that is not told. ``title`` is that of a mission or sortie.
    """

    name: str | None
    title: str | None
    models: list[ModelUsage]


class UnknownUsage(Record, frozen=True, kw_only=True):
    """An agent of which fleetd does not know what it takes, and its agent CLI."""

    agent_id: str
    harness: str


class TranscriptReading(Record, frozen=True, kw_only=True):
    """How far transcripts are read, and what of them is not counted.

    ``outstanding_bytes`` are still to be read, ``missing`` transcripts cannot be opened.
    ``broken_lines`` cannot be read, ``long_lines`` are too long. ``repeated`` lines tell requests
    that others had told before, such as copies after a fork.
    """

    transcripts: int
    missing: int
    outstanding_bytes: int
    broken_lines: int
    long_lines: int
    repeated: int


class MissionBudget(Record, frozen=True, kw_only=True):
    """What a person wants a mission to take at most, and what it took.

    Either ``tokens`` of all kinds, or ``usd_cents``; both are null for a mission without a budget.
    fleetd counts tokens and knows no prices: clients compute money.
    """

    mission_id: str
    title: str
    tokens: int | None
    usd_cents: int | None
    models: list[ModelUsage]


class UsageReport(Record, frozen=True, kw_only=True):
    """Tokens by agent, sortie, mission, model or day, the oldest day first, else the most first.

    Of the agents in ``not_known`` fleetd does not know what they took; ``not_known_more`` counts
    those that are not listed. What is older than ``kept_since`` is gone.
    """

    by: UsageBy
    time_zone: str
    groups: list[UsageGroup]
    not_known: list[UnknownUsage]
    not_known_more: int
    reading: TranscriptReading
    kept_since: str
    budget: MissionBudget | None = None


class UsageGet(Query[UsageReport], frozen=True):
    """Count the tokens that requests to models took, as the transcripts of sessions tell.

    Reads for at most 5 s what transcripts have got since the last time. A request counts once, also
    if several files tell it; one of a subagent counts for the agent of its session.
    """

    method: ClassVar[str] = "usage.report"
    long: ClassVar[bool] = True
    by: UsageBy = "agent"
    since_time: Timestamp | None = None
    agent_id: AgentId | None = None
    mission_id: MissionId | None = None
    time_zone: TimeZone = "UTC"
    until_time: Timestamp | None = None


class UsageBudget(Mutation[MissionBudget], frozen=True, kw_only=True):
    """Set or remove what a mission may take before ``attention`` says so; nothing is stopped.

    Give ``tokens`` or ``usd_cents``; neither removes the budget.
    """

    method: ClassVar[str] = "usage.budget"
    mission_id: MissionId
    tokens: BudgetTokens | None = None
    usd_cents: BudgetCents | None = None


class BudgetPage(Record, frozen=True, kw_only=True):
    """The budgets of open missions."""

    budgets: list[MissionBudget]


class BudgetList(Query[BudgetPage], frozen=True):
    """List the budgets of open missions, with what each mission took as far as it is read."""

    method: ClassVar[str] = "usage.budgets"
