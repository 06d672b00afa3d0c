"""The table of rules: which function answers which request; must not know any of them."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec

from ...protocol.request import Mutation, Request, result_type
from .context import Context
from .tx import Tx

F = TypeVar("F", bound=Callable[..., Any])


class Handler(msgspec.Struct, frozen=True):
    """A rule and the request it answers."""

    request: type[Request[Any]]
    rule: Callable[[Tx, Context, Any], Any]

    @property
    def writes(self) -> bool:
        """Whether the rule may change the store."""
        return issubclass(self.request, Mutation)


HANDLERS: dict[type[Request[Any]], Handler] = {}


def handler(rule: F) -> F:
    """Register ``rule(tx: Tx, ctx: Context, request: SomeRequest) -> ItsResult``.

    The annotations are checked here, so that a rule which answers with the wrong type fails at
    import and not in somebody's session. Raises TypeError.
    """
    hints = get_type_hints(rule)
    names = list(inspect.signature(rule).parameters)
    if names != ["tx", "ctx", "request"] or hints["tx"] is not Tx or hints["ctx"] is not Context:
        raise TypeError(f"{rule.__qualname__} must take (tx: Tx, ctx: Context, request: ...)")
    request = hints["request"]
    if hints["return"] != result_type(request):
        raise TypeError(f"{rule.__qualname__} must return {result_type(request)}")
    if request in HANDLERS:
        raise TypeError(f"{request.__name__} has two handlers")
    HANDLERS[request] = Handler(request, rule)
    return rule
