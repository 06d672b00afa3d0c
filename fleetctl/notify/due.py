"""Due states: decides which states of agents to report, without a clock and without sending.

A state is an agent, what it needs, and since when. Each is reported once. The time is an argument,
in monotonic seconds.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

from fleetd.protocol.patterns import AgentNeed

from ..client.models import AgentState
from ..output.times import ms_of

# The needs that a person may want to know of. An agent in the background continues alone.
REASONS: tuple[str, ...] = tuple(each for each in get_args(AgentNeed) if each != "background")
DEFAULT_REASONS = tuple(each for each in REASONS if each != "finished")
# A state that ends sooner is not reported.
DEBOUNCE_S = 2.0
# A person who has just prompted an agent is looking at it.
PROMPTED_S = 20.0
# A state that is older when it is first seen is no news: the person has had time to look.
NEWS_S = 3_600.0
# How many reported states are remembered.
REMEMBERED = 1_000

Key = tuple[str, str, str]


class _Held(NamedTuple):
    """A state that an agent is in, and when to report it."""

    state: AgentState
    due: float


class DueStates:
    """The states that agents are in, and which of them were reported.

    ``reported`` are the states that an earlier process has reported.
    """

    def __init__(self, reasons: Sequence[str], reported: Iterable[Key] = ()) -> None:
        self._reasons = frozenset(reasons)
        self._reported = dict.fromkeys(reported)
        self._held: dict[str, _Held] = {}

    def observe(
        self, states: Iterable[AgentState], now: float, wall_ms: int, *, only: str | None = None
    ) -> None:
        """Update what agents need now: all of them, or ``only`` one.

        ``wall_ms`` is the time in ms since the epoch. An agent that is not among the states needs
        nothing any more.
        """
        wanted = {each.agent_id: each for each in states if each.needs in self._reasons}
        for agent_id in [only] if only else [*self._held]:
            if agent_id not in wanted:
                self._held.pop(agent_id, None)
        for agent_id, state in wanted.items():
            held = self._held.get(agent_id)
            same = held is not None and _begun_by(held.state) == _begun_by(state)
            # The text may have changed in the same state.
            due = held.due if held and same else self._due(state, now, wall_ms)
            self._held[agent_id] = _Held(state, due)

    def take_due(self, now: float) -> list[AgentState]:
        """Return the states to report now, the oldest first; they count as reported."""
        found = [each.state for each in self._unreported() if each.due <= now]
        self._reported |= dict.fromkeys(map(key_of, found))
        for key in [*self._reported][:-REMEMBERED]:
            del self._reported[key]
        return sorted(found, key=lambda each: (each.since, each.agent_id))

    def next_due(self) -> float:
        """Return when the next state is due; infinity where none is."""
        return min((each.due for each in self._unreported()), default=math.inf)

    @property
    def waiting_only(self) -> bool:
        """Return whether agents that need no haste are ignored."""
        return "finished" not in self._reasons

    @property
    def reported(self) -> list[Key]:
        """Return the reported states, the latest last."""
        return [*self._reported]

    def _unreported(self) -> list[_Held]:
        return [each for each in self._held.values() if key_of(each.state) not in self._reported]

    def _due(self, state: AgentState, now: float, wall_ms: int) -> float:
        """Return when to report a state that begins; infinity for never."""
        since = ms_of(state.since)
        if since is not None and wall_ms - since > NEWS_S * 1_000:
            return math.inf
        prompted = None if state.prompted_at is None else ms_of(state.prompted_at)
        # The remaining seconds, limited in case somebody sets the clock.
        quiet = 0.0 if prompted is None else (prompted - wall_ms) / 1_000 + PROMPTED_S
        return now + max(DEBOUNCE_S, min(quiet, PROMPTED_S))


def key_of(state: AgentState) -> Key:
    """Return the identity of a state."""
    return state.agent_id, state.needs, state.since


def _begun_by(state: AgentState) -> tuple[Key, str | None]:
    """Return what decides when a state is due."""
    return key_of(state), state.prompted_at
