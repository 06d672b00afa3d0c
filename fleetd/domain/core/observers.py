"""Observers: what one noun does because a rule of another did something, in the same transaction.

The noun that acts does not import the one that observes: it calls, the other one subscribes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec

from .context import Context
from .tx import Row, Tx

P = ParamSpec("P")


class Observed(Generic[P]):
    """Something that rules do and others observe, with the parameters that they are told."""

    def __init__(self) -> None:
        self._observers: list[Callable[P, None]] = []

    def subscribe(self, observer: Callable[P, None]) -> Callable[P, None]:
        """Have a function called each time, in the order of subscription; usable as a decorator."""
        self._observers.append(observer)
        return observer

    def __call__(self, *args: P.args, **named: P.kwargs) -> None:
        """Tell every observer; what one raises rolls the whole transaction back."""
        for observer in self._observers:
            observer(*args, **named)


sortie_reported: Observed[[Tx, Context, str, Row]] = Observed()
"""An agent reported on a sortie: which agent, and the sortie's row as it was before."""

store_arrived: Observed[[Tx, Context]] = Observed()
"""A store that was moved is started for the first time in its new place."""

error_met: Observed[[Tx, Context, str, str | None]] = Observed()
"""An agent met an error after which it goes on: which agent, and what it says about the error."""

agent_left: Observed[[Tx, Context, str]] = Observed()
"""An agent has left, or its process is gone without a word: which one."""

agent_process_ended: Observed[[Tx, Context, str, str]] = Observed()
"""The process of an agent that was not at work is gone: which one, and why. One that an observer
lets go has left; the others are lost."""

handoff_due: Observed[[Tx, Context, Row]] = Observed()
"""The session began in time that a hand-off awaits, and its agent is registered: the hand-off."""

events_appended: Observed[
    [Tx, Context, str | None, Sequence[tuple[int, tuple[str, str | None, dict[str, Any]]]]]
] = Observed()
"""Events of one mission, or of none, were appended: each with its position, type, agent, data."""

file_edited: Observed[[Tx, Context, str, str]] = Observed()
"""A client, not a hook, reported that an agent changed a file: which agent, and the file."""
