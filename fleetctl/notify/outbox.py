"""Outbox: the messages that wait for one channel, and the task that sends them.

Each channel has an outbox of its own, so that one that hangs delays no other. An outbox is bounded:
a message that has no room, or cannot be sent in time, is dropped, counted and logged.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from .message import Message

# How many messages wait for a channel; when there are more, the oldest is dropped.
MOST = 100
PATIENCE_S = 600.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Undelivered(Exception):
    """A message did not get through; the text says why and holds no secret.

    One that was ``refused`` would be refused again.
    """

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class Channel(Protocol):
    """A way to tell a person.

    ``name`` has no secret in it. A channel that ``retries`` resends a message that did not get
    through. ``timeout_s`` bounds one try.
    """

    name: str
    retries: bool
    timeout_s: float

    async def send(self, message: Message) -> None:
        """Send a message; raises Undelivered."""


class Outbox:
    """The messages of one channel; ``log`` takes a line for the log."""

    def __init__(self, channel: Channel, log: Callable[[str], None]) -> None:
        self.sent = 0
        self.dropped = 0
        self._channel = channel
        self._log = log
        self._waiting: deque[tuple[Message, float]] = deque()
        self._more = trio.Event()

    @property
    def name(self) -> str:
        """Return the name of the channel."""
        return self._channel.name

    def put(self, message: Message) -> None:
        """Add a message, which never waits; the oldest is dropped where there is no room."""
        if len(self._waiting) >= MOST:
            oldest, _ = self._waiting.popleft()
            self._drop(oldest, f"more than {MOST} wait")
        self._waiting.append((message, trio.current_time()))
        self._more.set()

    async def run(self) -> None:
        """Send messages in their order, for ever."""
        while True:
            while self._waiting:
                await self._deliver(*self._waiting.popleft())
            self._more = trio.Event()
            await self._more.wait()

    async def _deliver(self, message: Message, put_at: float) -> None:
        pause, until = FIRST_PAUSE_S, put_at + PATIENCE_S
        while trio.current_time() < until:
            if (failed := await try_once(self._channel, message)) is None:
                self.sent += 1
                return
            if failed.refused or not self._channel.retries:
                self._drop(message, str(failed))
                return
            if pause == FIRST_PAUSE_S:
                self._log(f"{self.name}: not sent, retrying: {failed}")
            await trio.sleep_until(min(trio.current_time() + pause, until))
            pause = min(2 * pause, LONGEST_PAUSE_S)
        self._drop(message, "it could not be sent for 10 minutes")

    def _drop(self, message: Message, why: str) -> None:
        self.dropped += 1
        what = f"{message.agent} ({message.needs})"
        self._log(f"{self.name}: dropped the message about {what}, {self.dropped} so far: {why}")


async def try_once(channel: Channel, message: Message) -> Undelivered | None:
    """Send a message once; return why it did not get through, None when it did."""
    try:
        with trio.fail_after(channel.timeout_s):
            await channel.send(message)
    except Undelivered as error:
        return error
    except trio.TooSlowError:
        return Undelivered(f"no answer within {channel.timeout_s:g} s")
    except Exception as error:  # noqa: BLE001 - no fault of one channel ends the others
        # The text of a third-party error may contain a URL.
        return Undelivered(type(only(error)).__name__)
    return None


def only(error: BaseException) -> BaseException:
    """Return the one error inside a group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
