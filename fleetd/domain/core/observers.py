"""Observers: let one noun react to a rule of another noun, in the same transaction.

The acting noun does not import the observing noun: the first calls, the second subscribes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec

from .context import Context
from .tx import Row, Tx

P = ParamSpec("P")


class Observed(Generic[P]):
    """Something that rules do and others observe, with the parameters of the observers."""

    def __init__(self) -> None:
        self._observers: list[Callable[P, None]] = []

    def subscribe(self, observer: Callable[P, None]) -> Callable[P, None]:
        """Call a function each time, in the order of subscription; usable as a decorator."""
        self._observers.append(observer)
        return observer

    def __call__(self, *args: P.args, **named: P.kwargs) -> None:
        """Call every observer; an error in one rolls the whole transaction back."""
        for observer in self._observers:
            observer(*args, **named)


sortie_reported: Observed[[Tx, Context, str, Row]] = Observed()
"""An agent reported on a sortie: which agent, and the sortie's row as it was before."""

store_arrived: Observed[[Tx, Context]] = Observed()
"""A moved store is opened for the first time in its new place."""

error_met: Observed[[Tx, Context, str, str | None]] = Observed()
"""An agent met an error and goes on: which agent, and what it reports about the error."""

agent_left: Observed[[Tx, Context, str]] = Observed()
"""An agent has left, or its process is gone without notice: which agent."""

agent_process_ended: Observed[[Tx, Context, str, str]] = Observed()
"""The process of an agent that was not at work is gone: which agent, and why. An agent that an
observer marks gone has left; the others are lost."""

handoff_due: Observed[[Tx, Context, Row]] = Observed()
"""The session that a hand-off awaits began in time and its agent is registered: the hand-off."""

events_appended: Observed[
    [Tx, Context, str | None, Sequence[tuple[int, tuple[str, str | None, dict[str, Any]]]]]
] = Observed()
"""Events of one mission, or of none, were appended: each with its position, type, agent, data."""

file_edited: Observed[[Tx, Context, str, str]] = Observed()
"""A client, not a hook, reported that an agent changed a file: which agent, and the file."""
