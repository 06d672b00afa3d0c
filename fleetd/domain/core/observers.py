"""Observers: what one noun does because a rule of another did something, in the same transaction.

The noun that acts does not import the one that observes: it calls, the other one subscribes.
"""

from collections.abc import Callable
from typing import Generic, ParamSpec

from .context import Context
from .tx import Tx

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


error_met: Observed[[Tx, Context, str, str | None]] = Observed()
"""An agent met an error after which it goes on: which agent, and what it says about the error."""
