"""Table of methods: the function that answers each request, and its flags."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Raw

from ...protocol.request import Request, result_type
from .context import Context
from .tx import Tx

F = TypeVar("F", bound=Callable[..., Any])


class Method(msgspec.Struct, frozen=True):
    """A request of the wire and the function that answers it.

    ``answer`` is a rule or a service. A rule, ``(tx, ctx, request)``, runs in one transaction. A
    service, ``async (engine, request, caller)``, uses as many as it needs. A service may return the
    result as the JSON to send, msgspec.Raw.
    """

    request: type[Request[Any]]
    answer: Callable[..., Any]
    is_rule: bool
    without_store: Callable[[Any], bool]
    """Whether a request is answered while the store is unavailable."""
    slow: bool
    """Whether a long duration is normal."""


REGISTERED: dict[type[Request[Any]], Method] = {}
# Rules and services that may use the reserve of a full disk.
_FREES_SPACE: set[Callable[..., Any]] = set()
_OPTIMISTIC: set[Callable[..., Any]] = set()
_WITHOUT_TURN: set[Callable[..., Any]] = set()


def method(
    request: type[Request[Any]],
    *,
    without_store: bool | Callable[[Any], bool] = False,
    slow: bool = False,
) -> Callable[[F], F]:
    """Register the function that answers a request; see ``Method`` for the flags.

    This checks the annotations, so that a function that answers with the wrong type fails at import
    and not in somebody's session. Raises TypeError.
    """

    def register(answer: F) -> F:
        is_rule = not inspect.iscoroutinefunction(answer)
        _check(answer, request, is_rule=is_rule)
        if request in REGISTERED:
            raise TypeError(f"{request.__name__} already has a function")
        REGISTERED[request] = Method(
            request=request,
            answer=answer,
            is_rule=is_rule,
            without_store=without_store if callable(without_store) else lambda _: without_store,
            slow=slow or request.long,
        )
        return answer

    return register


def _check(answer: Callable[..., Any], request: type[Request[Any]], *, is_rule: bool) -> None:
    hints = get_type_hints(answer)
    wanted = ["tx", "ctx", "request"] if is_rule else ["engine", "request", "caller"]
    if list(inspect.signature(answer).parameters) != wanted:
        raise TypeError(f"{answer.__qualname__} must take ({', '.join(wanted)})")
    if is_rule and (hints["tx"] is not Tx or hints["ctx"] is not Context):
        raise TypeError(f"{answer.__qualname__} must take tx: Tx, ctx: Context")
    result = result_type(request)
    results = [result] if is_rule else [result, result | Raw]
    if hints["request"] is not request or hints["return"] not in results:
        raise TypeError(
            f"{answer.__qualname__} must take request: {request.__name__} and return {result}"
        )


def optimistic(rule: F) -> F:
    """Let a rule run before its turn, in a store that several machines share.

    Use it for rules that run often and read little: see store/postgres/speculation.py.
    """
    _OPTIMISTIC.add(rule)
    return rule


def is_optimistic(rule: Callable[..., Any]) -> bool:
    """Return whether a rule may run before its turn."""
    return rule in _OPTIMISTIC


def without_turn(rule: F) -> F:
    """Let a rule commit without the fleet's turn, in a store that several machines share.

    The rule runs one statement, which is committed before the rule goes on: the rule must not raise
    after it. It may be committed twice, and a crash of the server may undo the last commits. Rules
    in a turn must expect its rows to change between their own statements.
    """
    _WITHOUT_TURN.add(rule)
    return rule


def needs_no_turn(rule: Callable[..., Any]) -> bool:
    """Return whether a rule commits without the fleet's turn."""
    return rule in _WITHOUT_TURN


def frees_space(rule: F) -> F:
    """Let a rule use the reserve of a full disk, which is kept for rules that delete.

    A service uses it only to remember its answer.
    """
    _FREES_SPACE.add(rule)
    return rule


def may_use_reserve(rule: Callable[..., Any]) -> bool:
    """Return whether a rule frees space, so that it may use the reserve of a full disk."""
    return rule in _FREES_SPACE
