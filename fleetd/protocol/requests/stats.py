"""Requests about statistics."""

from typing import ClassVar, Literal

from ..records import Record
from ..request import Query
from ..types import Limit, Timestamp


class CompactionEffect(Record, frozen=True, kw_only=True):
    """One compaction, and what its agent did until the next one, for an hour at most.

    ``briefing`` is ``given`` if the answer to a hook had it, ``off`` if the mission has none, and
    null if neither is recorded, or a recovery briefed the agent of a mission that has none.
    ``calls_until_edit`` counts the tool calls up to the first one that changed a file; null if none
    did. The others count different commands, files and tasks of subagents that the agent had run,
    read or started within the hour before, and ran, read or started again. ``over`` is false while
    this can change.
    """

    seq: int
    at: str
    agent_id: str
    mission_id: str | None
    briefing: Literal["given", "off"] | None
    calls: int
    calls_until_edit: int | None
    commands_again: int
    files_again: int
    subagents_again: int
    over: bool


class RecoveryGroup(Record, frozen=True, kw_only=True):
    """Compactions with a briefing, or without: how many, and what followed one of them.

    ``edited`` counts those after which the agent changed a file. ``calls_until_edit`` is the
    median, in which one without an edit counts as longer than all others; null if it is one of
    those. The others are means. All are null for fewer than ``fewest`` compactions.
    """

    compactions: int
    edited: int
    calls_until_edit: float | None
    commands_again: float | None
    files_again: float | None
    subagents_again: float | None


class RecoveryStats(Record, frozen=True, kw_only=True):
    """What agents did after compactions, with a briefing and without.

    ``unknown`` counts compactions that are in neither group, ``not_over`` those of which the hour
    is not over. ``compactions`` lists the newest of all, and ``more`` counts the others.
    """

    with_briefing: RecoveryGroup
    without_briefing: RecoveryGroup
    unknown: int
    not_over: int
    fewest: int
    compactions: list[CompactionEffect]
    more: int


class StatsRecovery(Query[RecoveryStats], frozen=True):
    """Compare what agents did after compactions, with a briefing and without.

    Hooks do not tell requests to a model: tool calls are counted.
    """

    method: ClassVar[str] = "stats.recovery"
    since_time: Timestamp | None = None
    limit: Limit = 100
