"""A client that passes on results as the daemon's JSON: the page decodes it, not this process.

A timeline may have megabytes. Decoding and encoding them again takes thirty times as long.
"""

from typing import Any

import msgspec

from ..client import AsyncFleet
from ..client.models import PlainRecord
from ..client.protocol import Notice, Reply, RpcProtocol


class _Result(msgspec.Struct):
    """A reply without an error; other messages have no result."""

    id: int
    result: msgspec.Raw


_decode = msgspec.json.Decoder(_Result).decode


class RawProtocol(RpcProtocol):
    """Returns results as ``msgspec.Raw``, and everything else unchanged."""

    def _decoded(self, line: Any) -> Reply | Notice | None:
        try:
            found = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return super()._decoded(line)
        return self._reply(PlainRecord(id=found.id, result=found.result))


class RawFleet(AsyncFleet):
    """Connects with the first call, and answers ``call_raw`` with ``msgspec.Raw``."""

    def __init__(self, path: str | None = None, **options: Any) -> None:
        super().__init__(path, connect=False, **options)
        self._protocol = RawProtocol()
