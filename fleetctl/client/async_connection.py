"""Many calls in flight on one connection; must not know how they outlive it, or what they ask."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from fleetd.protocol.errors import FleetError

from .async_transport import TrioCarrier
from .protocol import Asked, Conversation, Progress, Reply, TooSlow, lost, progress_of

# How many calls wait to be sent before those who ask wait for that too.
UNSENT = 32
# A connection that says nothing is no broken one: each call knows how long it waits.
FOR_EVER = float("inf")


def _ignored(_: Progress) -> None:
    """Hear what is said of a call that nobody waits for any more."""


class _Waiting:
    """One call that waits for its reply."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.outcome: Reply | FleetError = lost()


class Connection:
    """One connection and the calls that are in flight on it."""

    def __init__(self, carrier: TrioCarrier, conversation: Conversation) -> None:
        self.broken = False
        self._carrier = carrier
        self._conversation = conversation
        self._waiting: dict[int, _Waiting] = {}
        self._hearing: dict[str, Callable[[Progress], None]] = {}
        self._give, self._take = trio.open_memory_channel[Asked](UNSENT)

    async def exchange(
        self,
        method: str,
        params: bytes,
        reply_s: float,
        token: str = "",
        progress: Callable[[Progress], None] | None = None,
    ) -> Any:
        """Return a call's result; raises what it was refused with, TooSlow, ConnectionLost.

        ``progress`` hears what is said of the ``token`` meanwhile.
        """
        asked = self._conversation.ask(method, params)
        waiting = self._waiting[asked.number] = _Waiting()
        if progress is not None:
            self._hearing[token] = progress
        try:
            with trio.move_on_after(reply_s):
                with suppress(trio.ClosedResourceError):  # it ended, and has said so
                    await self._give.send(asked)
                await waiting.over.wait()
        finally:
            # Whoever was cancelled leaves the others whole: his reply is passed over.
            del self._waiting[asked.number]
            self._conversation.forget(asked.number)
            self._hearing.pop(token, None)
        if not waiting.over.is_set():
            raise TooSlow
        if isinstance(waiting.outcome, FleetError):
            raise waiting.outcome
        if waiting.outcome.error is not None:
            raise waiting.outcome.error
        return waiting.outcome.result

    async def serve(self) -> None:
        """Send what is asked and hand out what is answered, until the connection is over."""
        why: FleetError = lost()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                why = await self._receive()
                nursery.cancel_scope.cancel()
        finally:
            self._end(why)

    async def _send(self) -> None:
        async for asked in self._take:
            if asked.number in self._waiting:
                # Half a line would spoil all that follow: who is cancelled is not waited for here.
                await self._carrier.send(asked.line, FOR_EVER)

    async def _receive(self) -> FleetError:
        """Hand out replies; return why there are no more."""
        try:
            while True:
                self._conversation.feed(await self._carrier.receive(FOR_EVER))
                while (message := self._conversation.next_message()) is not None:
                    if isinstance(message, Reply):
                        self._hand_out(message)
                    elif (told := progress_of(message)) is not None:
                        self._hearing.get(told[0], _ignored)(told[1])
        except FleetError as error:
            return error

    def _hand_out(self, reply: Reply) -> None:
        if (waiting := self._waiting.get(reply.number)) is not None:
            waiting.outcome = reply
            waiting.over.set()

    def _end(self, why: FleetError) -> None:
        self.broken = True
        self._carrier.close()
        self._give.close()
        self._take.close()
        for waiting in self._waiting.values():
            if not waiting.over.is_set():
                waiting.outcome = why
                waiting.over.set()
