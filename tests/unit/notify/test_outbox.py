"""Outboxes in virtual time: what is tried again, what is dropped, and that nobody waits."""

import pytest
import trio
import trio.testing

from fleetctl.notify import outbox as outboxes
from fleetctl.notify.message import Message
from fleetctl.notify.outbox import MOST, Outbox, Undelivered
from tests.support.notify import message

DROPPED = "fake: dropped the message about alice (permission)"


class Fake:
    """A channel that fails as often as it is told, or hangs."""

    name = "fake"
    timeout_s = 20.0

    def __init__(self, *errors: Exception, retries: bool = True, hangs: bool = False) -> None:
        self.retries = retries
        self.hangs = hangs
        self.got: list[str] = []
        self.tries: list[float] = []
        self._errors = [*errors]

    async def send(self, message: Message) -> None:
        self.tries.append(trio.current_time())
        if self.hangs:
            await trio.sleep_forever()
        if self._errors:
            raise self._errors.pop(0)
        self.got.append(message.id)


@pytest.fixture
def said() -> list[str]:
    return []


async def test_a_message_is_sent_once(autojump_clock, nursery, said):
    box = Outbox(channel := Fake(), said.append)
    nursery.start_soon(box.run)
    for number in range(3):
        box.put(message(agent=f"a{number}"))
        await trio.sleep(number)
    assert [each[:2] for each in channel.got] == ["a0", "a1", "a2"]
    assert (box.sent, box.dropped, said) == (3, 0, [])


async def test_the_pauses_grow_and_the_message_goes_after_ten_minutes(
    autojump_clock, nursery, said
):
    failures = [Undelivered("Connection refused") for _ in range(99)]
    box = Outbox(channel := Fake(*failures), said.append)
    nursery.start_soon(box.run)
    box.put(message())
    await trio.sleep(700)
    begun = channel.tries[0]
    assert [each - begun for each in channel.tries[:8]] == [0, 1, 3, 7, 15, 31, 63, 123]
    assert max(channel.tries) - begun < 600
    assert (box.sent, box.dropped) == (0, 1)
    assert said == [
        "fake: not sent, retrying: Connection refused",
        f"{DROPPED}, 1 so far: it could not be sent for 10 minutes",
    ]


async def test_a_message_that_fails_at_first_is_sent_once(autojump_clock, nursery, said):
    box = Outbox(channel := Fake(Undelivered("no"), Undelivered("no")), said.append)
    nursery.start_soon(box.run)
    box.put(message())
    await trio.sleep(60)
    assert len(channel.got) == box.sent == 1
    assert box.dropped == 0


@pytest.mark.parametrize(
    ("channel", "why"),
    [
        (Fake(Undelivered("status 404", refused=True)), "status 404"),
        (Fake(Undelivered("exit status 1"), retries=False), "exit status 1"),
        (Fake(hangs=True, retries=False), "no answer within 20 s"),
        (Fake(ValueError("https://SECRET"), retries=False), "ValueError"),
        (Fake(ExceptionGroup("x", [KeyError("SECRET")]), retries=False), "KeyError"),
    ],
)
async def test_what_would_fail_again_is_dropped_at_once(
    autojump_clock, nursery, said, channel, why
):
    box = Outbox(channel, said.append)
    nursery.start_soon(box.run)
    box.put(message())
    await trio.sleep(25)
    assert (box.sent, box.dropped) == (0, 1)
    assert said == [f"{DROPPED}, 1 so far: {why}"]


async def test_the_oldest_goes_where_too_many_wait(autojump_clock, nursery, said):
    box = Outbox(channel := Fake(), said.append)
    for number in range(MOST + 3):
        box.put(message(agent=f"a{number}"))
    nursery.start_soon(box.run)
    await trio.sleep(1)
    assert (box.sent, box.dropped, len(said)) == (MOST, 3, 3)
    assert channel.got[0].startswith("a3/")
    assert [" a0 (" in said[0], " a2 (" in said[2]] == [True, True]


async def test_a_channel_that_hangs_delays_no_other(autojump_clock, nursery, said):
    hanging = Outbox(Fake(hangs=True), said.append)
    failing = Outbox(Fake(*(OSError() for _ in range(99))), said.append)
    well = Outbox(channel := Fake(), said.append)
    boxes = [hanging, failing, well]
    for box in boxes:
        nursery.start_soon(box.run)
    for number in range(1_000):
        for box in boxes:
            box.put(message(agent=f"a{number}"))
        await trio.testing.wait_all_tasks_blocked()
    assert (well.sent, well.dropped) == (1_000, 0)
    assert len(set(channel.got)) == 1_000
    await trio.sleep(2 * outboxes.PATIENCE_S)
    for box in (hanging, failing):
        assert (box.sent, box.dropped) == (0, 1_000)
