"""The shape of a request: one Struct is one method."""

import threading
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import replace

R = TypeVar("R")
Shape = TypeVar("Shape")

# Goes up when a client of the version before would misunderstand the daemon.
PROTOCOL = 1
# Parameters that many methods take, about the call and not about what it does.
BY_NAME_ONLY = ("idempotency_key", "progress_token")

IdempotencyKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="A second call with the same method and key within 24 h returns the first "
        "result and changes nothing.",
    ),
]

ProgressToken = Annotated[str, Meta(min_length=1, max_length=64)]

# What each request's result is read as, once that was learned.
_RESULTS: dict[type, Any] = {}
_LEARNING = threading.Lock()


def learned(shape: Shape) -> Shape:
    """Have msgspec learn a type, and return it.

    It learns a Struct at its first use, and a second thread that meets it half learned crashes in
    msgspec's core.
    """
    with _LEARNING:
        msgspec.json.Decoder(shape)
    return shape


class Request(msgspec.Struct, Generic[R], frozen=True, forbid_unknown_fields=True):
    """Parameters of one method; the type argument is the method's result.

    A subclass names its method in ``method``. Field order is the order of by-position parameters.
    A ``long`` request may take as long as its work requires.
    """

    method: ClassVar[str] = ""
    changes: ClassVar[bool] = False
    long: ClassVar[bool] = False

    def keyed(self, key: str) -> Self:  # noqa: ARG002
        """Return the request as it may be sent twice: with a key, if it needs one and has none."""
        return self

    def tracked(self, token: str) -> Self:  # noqa: ARG002
        """Return the request as it tells how far it is, if it may take long."""
        return self

    def encoded(self) -> bytes:
        """Return the parameters as JSON."""
        return msgspec.json.encode(self)

    def answer(self, result: Any) -> R:
        """Return plain data as this method's result; raises ValueError when it is none."""
        kind = type(self)
        if (shape := _RESULTS.get(kind)) is None:
            shape = _RESULTS[kind] = learned(result_type(kind))
        return msgspec.convert(result, shape)  # type: ignore[no-any-return]


class Query(Request[R], frozen=True):
    """A request that changes nothing."""


class Mutation(Request[R], frozen=True, kw_only=True):
    """A request that may change the store; it is answered after COMMIT."""

    changes: ClassVar[bool] = True
    idempotency_key: IdempotencyKey | None = None

    def keyed(self, key: str) -> Self:
        """Return the request with this key, unless it has one."""
        return self if self.idempotency_key else replace(self, idempotency_key=key)


class LongMutation(Mutation[R], frozen=True, kw_only=True):
    """A request that may take long; ``progress_token`` asks for progress notifications."""

    long: ClassVar[bool] = True
    progress_token: ProgressToken | None = None

    def tracked(self, token: str) -> Self:
        """Return the request with this token, unless it has one."""
        return self if self.progress_token else replace(self, progress_token=token)


def result_type(request: type[Request[Any]]) -> Any:
    """Return the type of a method's result, read from ``Query[...]`` or ``Mutation[...]``."""
    for base in getattr(request, "__orig_bases__", ()):
        if args := get_args(base):
            return args[0]
    raise TypeError(f"{request.__name__} does not name its result: write Mutation[Result]")


def positional_fields(request: type[Request[Any]]) -> tuple[str, ...]:
    """Return the wire names of by-position parameters, in order."""
    return tuple(name for name in request.__struct_encode_fields__ if name not in BY_NAME_ONLY)
