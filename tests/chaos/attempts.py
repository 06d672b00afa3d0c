"""One request, disturbed at one place in one way, and the checks afterwards."""

import json
import logging
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
import trio.testing

from tests.chaos.campaign import Red
from tests.chaos.inflight import Kind, line_of
from tests.chaos.served import Life, living
from tests.chaos.steps import StepCounter
from tests.support.fleet import Clock, Fleet

HELLO = b'{"jsonrpc":"2.0","id":"h","method":"system.hello"}\n'
DRAINED_S = 10.0
# Longer than any task here waits for anything, in virtual time.
SETTLED_S, PATIENCE_S = 8.0, 60.0
# These differ between two starts of a store without any request.
NOT_COMPARED = ("counters", "store_meta", "sqlite_sequence")

State = dict[str, Counter[Any]]


def state(fleet: Fleet) -> State:
    """Return the stored state, without fields that differ from run to run."""
    told = ("status", "type", "trigger", "state", "held_by", "agent_id", "method", "progress")
    found: State = {
        table: Counter(tuple(row[name] for name in told if name in row) for row in rows)
        for table, rows in fleet.dump(*NOT_COMPARED).items()
    }
    found["files"] = Counter(Path(name).suffix for name in fleet.files())
    return found


def differences(one: State, other: State, *but: str) -> str:
    """Describe the differences between two states; return '' when there are none."""
    return "; ".join(
        f"{name}: {dict(one[name] - other[name])} became {dict(other[name] - one[name])}"
        for name in one
        if name not in but and one[name] != other[name]
    )


async def answered(stream: trio.SocketStream) -> Any:
    """Return the next line, None when the connection ended first; half a line is no reply."""
    received = b""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while b"\n" not in received:
            if not (data := await stream.receive_some(65_536)):
                break
            received += data
    line, found, _ = received.partition(b"\n")
    return json.loads(line) if found else None


def outcome(reply: Any) -> str:
    """Return the outcome of a reply in a word: done, lost, or the kind of the error."""
    if reply is None:
        return "lost"
    replies = reply if isinstance(reply, list) else [reply]
    errors = [each["error"]["data"]["kind"] for each in replies if "error" in each]
    return errors[0] if errors else "done"


@dataclass(frozen=True)
class Undisturbed:
    """The effect of a kind of request without any disturbance."""

    before: State
    after: State
    again: State
    steps: int


class Attempt:
    """One request, disturbed at one place in one way, and the checks afterwards."""

    def __init__(self, kind: Kind, way: str, step: int | None) -> None:
        self.kind, self.way, self.step = kind, way, step
        self.steps = StepCounter()
        self.said: list[logging.LogRecord] = []

    def carry_out(self, usual: Undisturbed | None) -> Undisturbed:
        """Run the attempt in a program of its own; raises Red."""
        clock = trio.testing.MockClock(autojump_threshold=0)
        with tempfile.TemporaryDirectory(prefix="a") as place, _listening_to_the_log(self.said):
            found = trio.run(self._run, Path(place), usual, clock=clock, instruments=[self.steps])
        for record in self.said:
            if record.levelno >= logging.ERROR or record.exc_info:
                raise self._red(f"the log has an error: {record.getMessage()} {record.exc_info}")
        return found

    def _red(self, what: str) -> Red:
        return Red(f"{self.kind.name}, {self.way} after step {self.step}: {what}")

    async def _run(self, place: Path, usual: Undisturbed | None) -> Undisturbed:
        clock = Clock()
        clock.follow_trio()
        async with living(place, clock) as life:
            line = line_of(await self.kind.prepare(life.fleet))
            await self._rest(life)
            before, clean = state(life.fleet), life.leaks()
            reply = await self._disturb(life, line)
            if usual is None:
                return await self._learn(life, line, before, reply)
            if self.way != "stop":
                await trio.sleep(SETTLED_S)
                self._check_leaks(clean, life.leaks())
                await self._check(life, line, reply, usual)
        if self.way == "stop":
            (place / "s").unlink(missing_ok=True)
            async with living(place, clock) as life:
                await trio.sleep(SETTLED_S)
                await self._check(life, line, reply, usual)
        return usual

    async def _learn(self, life: Life, line: bytes, before: State, reply: Any) -> Undisturbed:
        if outcome(reply) != (self.kind.refused or "done"):
            raise self._red(f"undisturbed, the reply is {reply}")
        await trio.sleep(SETTLED_S)
        after, steps = state(life.fleet), self.steps.taken
        await self._again(life, line)
        return Undisturbed(before, after, state(life.fleet), steps)

    async def _check(self, life: Life, line: bytes, reply: Any, usual: Undisturbed) -> None:
        """Check the state, and the state after a retry."""
        self._check_half(usual, state(life.fleet), reply)
        said = await self._again(life, line)
        expected = {self.kind.refused or "done"}
        if self.way == "stop" and self.kind.unfinished:
            expected.add("not_found")
        if said not in expected:
            raise self._red(f"when it was asked again the answer was {said}")
        if self.kind.refused is None:
            self._check_once(usual, state(life.fleet), done=said == "done")

    def _check_once(self, usual: Undisturbed, now: State, *, done: bool) -> None:
        varies = [*self.kind.varies, *([] if done else ["idempotency_keys"])]
        if varies:
            varies.append("events")
        missing = usual.after["events"] - now["events"]
        told = differences(usual.again, now, *varies) or (missing and f"not told: {missing}")
        if told:
            raise self._red(f"asked again, it is not as if it was done once: {told}")

    async def _rest(self, life: Life) -> None:
        await life.fleet.engine.outbox.settled()
        await trio.testing.wait_all_tasks_blocked()

    async def _disturb(self, life: Life, line: bytes) -> Any:
        """Send the request, disturb it, and return the reply if there is one."""
        stream = await trio.open_unix_socket(life.path)
        if self.way == "reset":  # closing with an unread reply resets the connection
            await stream.send_all(HELLO)
        await trio.testing.wait_all_tasks_blocked()
        disturb: dict[str, Callable[[], object]] = {
            "dropped": life.drop,
            "gone": stream.socket.close,
            "reset": stream.socket.close,
            "half": lambda: stream.socket.shutdown(socket.SHUT_WR),
            "stop": life.stop.set,
        }
        self.steps.arm(self.step, disturb[self.way])
        with trio.move_on_after(PATIENCE_S) as patience:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await stream.send_all(line)
            reply = None
            if self.way not in ("gone", "reset") or self.step is None:
                reply = await answered(stream)
            else:
                await trio.sleep(SETTLED_S)
        self.steps.disarm()
        await stream.aclose()
        if patience.cancelled_caught:
            raise self._red("neither an answer nor an end came")
        if self.way == "stop" and self.step is not None:
            life.stop.set()  # in case it ended before that step
            await self._drained(life)
        return reply

    async def _drained(self, life: Life) -> None:
        with trio.move_on_after(DRAINED_S) as patience:
            await life.ended.wait()
        if patience.cancelled_caught:
            raise self._red(f"the daemon was not drained {DRAINED_S} s after it was told to stop")

    def _check_leaks(self, clean: dict[str, Any], now: dict[str, Any]) -> None:
        for what, before in clean.items():
            if now[what] != before:
                raise self._red(f"{what}: {before} before, and {now[what]} when all was over")

    def _check_half(self, usual: Undisturbed, now: State, reply: Any) -> None:
        """Check that acknowledged changes are there, and that no transaction is partial."""
        said = outcome(reply)
        allowed = {"done", "lost", "unavailable", self.kind.refused}
        if self.way == "half":
            allowed = {self.kind.refused or "done"}
        if said not in allowed:
            raise self._red(f"the reply is {reply}")
        if said == "done" and now != usual.after:
            raise self._red(f"it was acknowledged, and {differences(usual.after, now)}")
        if self.kind.whole and now not in (usual.before, usual.after):
            raise self._red(f"it is half done: {differences(usual.before, now)}")

    async def _again(self, life: Life, line: bytes) -> str:
        """Send the same line once more, and return the outcome in a word."""
        stream = await trio.open_unix_socket(life.path)
        with trio.move_on_after(PATIENCE_S) as patience:
            await stream.send_all(line)
            reply = await answered(stream)
            if self.kind.then is not None:
                await stream.send_all(line_of([self.kind.then()]))
                await answered(stream)
        await stream.aclose()
        if patience.cancelled_caught:
            raise self._red("when it was asked again no answer came")
        await trio.sleep(SETTLED_S)
        return outcome(reply)


@contextmanager
def _listening_to_the_log(said: list[logging.LogRecord]) -> Iterator[None]:
    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record)

    handler, logger = Keeping(), logging.getLogger("fleetd")
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
