"""Requests that take long and tell how far they are."""

from typing import Annotated, ClassVar, Self, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from .records import Record
from .request import Mutation

R = TypeVar("R")

ProgressToken = Annotated[str, Meta(min_length=1, max_length=64)]


class Progress(Record, frozen=True, kw_only=True):
    """How far a request is: the notification ``progress``, until the reply comes.

    ``done`` of ``total`` are done of ``what``: checkpoints, files, pages, rows. It begins anew with
    another ``what``; ``total`` is null where nobody knows it.
    """

    token: str
    what: str
    done: int
    total: int | None


class LongMutation(Mutation[R], frozen=True, kw_only=True):
    """A request that may take long; ``progress_token`` asks for notifications of how far it is."""

    long: ClassVar[bool] = True
    progress_token: ProgressToken | None = None

    def tracked(self, token: str) -> Self:
        """Return the request with this token, unless it has one."""
        return self if self.progress_token else replace(self, progress_token=token)
