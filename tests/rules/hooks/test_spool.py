"""What waits in the spool comes in: once, in order, before anything newer, and never again."""

import io
import json
import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.engine.hooks import deliver
from fleetd.engine.hooks.deliver import take_spooled, tidy_spool
from fleetd.engine.jobs import timers
from fleetd.harness.report import PromptSubmitted, SessionStarted
from fleetd.host import processes, trace
from fleetd.protocol.errors import Storage, Unavailable
from fleetd.protocol.requests.agent import AgentGet, AgentRegister
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookDeliver, HookStatusGet
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.requests.system import SystemDoctor, SystemForget
from fleetd.store.spool import MOST_BYTES
from tests.support.fleet import SECOND, Fleet, opened
from tests.support.hook_sessions import Window


def prompt(text: str, session: str = "s-1", cwd: Path | str = "/tmp") -> str:
    """Return the payload of a prompt."""
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": text}
    return json.dumps(
        payload | {"cwd": str(cwd), "transcript_path": f"/c/projects/p/{session}.jsonl"}
    )


class Leaver:
    """Leaves files as the hook client does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        directory.mkdir(exist_ok=True)

    def frame(self, delivery_id: str, payload: str, *words: str) -> bytes:
        params = {"delivery_id": delivery_id, "harness": "claude", "args": words}
        message = {"jsonrpc": "2.0", "method": "hook.deliver", "params": params, "id": 1}
        params["payload"] = payload
        return json.dumps(message).encode() + b"\n"

    def leave(self, payload: str, at_ms: int, *words: str) -> Path:
        self.count += 1
        delivery_id = f"{self.count:032x}"
        return self.write(
            f"{at_ms:013}-{delivery_id}.json", self.frame(delivery_id, payload, *words)
        )

    def write(self, name: str, content: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(content)
        return path

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


@pytest.fixture
def leaver(tmp_path: Path) -> Leaver:
    return Leaver(tmp_path / "spool")


async def prompts(fleet: Fleet) -> list[str]:
    """Return the prompts that were recorded, in order."""
    page = await fleet.do(EventList(type="prompt_submitted", limit=1_000))
    return [event.data["prompt"] for event in page.events]


async def counted(fleet: Fleet) -> tuple[int, int, int]:
    """Return how many deliveries were counted, from the spool, and that fitted no shape."""
    rows = (await fleet.do(HookStatusGet())).harnesses
    return (
        sum(row.deliveries for row in rows),
        sum(row.from_spool for row in rows),
        sum(row.unfit for row in rows),
    )


async def test_what_waits_at_the_start_is_in_before_anybody_is_served(
    tmp_path: Path, leaver: Leaver
) -> None:
    for number in (3, 1, 2):
        leaver.leave(prompt(f"prompt {number}"), 1_000 * number)
    async with opened(tmp_path) as fleet:
        assert await prompts(fleet) == ["prompt 1", "prompt 2", "prompt 3"]
        assert await counted(fleet) == (3, 3, 0)
        assert leaver.names == []
    async with opened(tmp_path) as fleet:
        assert await counted(fleet) == (3, 3, 0)


async def test_what_waits_comes_before_anything_newer(fleet: Fleet, leaver: Leaver) -> None:
    leaver.leave(prompt("earlier"), fleet.clock() - SECOND)
    await fleet.do(HookDeliver("live-0001", "claude", prompt("later")))
    assert await prompts(fleet) == ["earlier", "later"]


async def test_what_came_live_as_well_counts_once(fleet: Fleet, leaver: Leaver) -> None:
    file = leaver.leave(prompt("once"), fleet.clock())
    await fleet.do(HookDeliver(file.stem[14:], "claude", prompt("once")))
    leaver.leave(prompt("twice"), fleet.clock())
    await take_spooled(fleet.engine)
    await take_spooled(fleet.engine)
    assert await prompts(fleet) == ["once", "twice"]
    assert (await counted(fleet))[0] == 2


async def test_the_timer_takes_in_what_waits(
    fleet: Fleet, leaver: Leaver, autojump_clock: Any
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.drain_spool, fleet.engine)
        await trio.sleep(1)
        leaver.leave(prompt("late"), fleet.clock())
        await trio.sleep(timers.SPOOL_S)
        nursery.cancel_scope.cancel()
    assert await prompts(fleet) == ["late"]


async def test_two_who_take_in_at_once_take_each_once(fleet: Fleet, leaver: Leaver) -> None:
    for number in range(20):
        leaver.leave(prompt(f"{number}"), 1_000 + number)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(take_spooled, fleet.engine)
    assert await prompts(fleet) == [f"{number}" for number in range(20)]
    assert (await counted(fleet))[0] == 20


FRAME = b'{"jsonrpc":"2.0","method":"hook.deliver","params":'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\x00",
        b"[" * 100_000,
        b'{"method":"event.append","params":{}}',
        FRAME + b'{"delivery_id":"x","harness":"claude","payload":""}}',
        FRAME + b'{"delivery_id":"%b","harness":"claude","payload":"{}"}}' % (b"f" * 32),
        FRAME + b'{"delivery_id":"%b","harness":"../x","payload":"{}"}}' % (b"0" * 32),
    ],
)
async def test_what_is_no_frame_is_put_aside_and_told_in_the_log(
    fleet: Fleet, leaver: Leaver, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    leaver.write(f"{1:013}-{'0' * 32}.json", content)
    leaver.leave(prompt("good"), 2)
    with caplog.at_level(logging.WARNING, "fleetd"):
        await take_spooled(fleet.engine)
    assert await prompts(fleet) == ["good"]
    assert leaver.names == [f"{1:013}-{'0' * 32}.unreadable"]
    assert "not written by the hook client" in caplog.text


@pytest.mark.parametrize("kind", ["directory", "link", "pipe", "huge", "name"])
async def test_what_is_no_file_of_ours_is_put_aside(
    fleet: Fleet, leaver: Leaver, kind: str
) -> None:
    path = leaver.directory / f"{1:013}-{'0' * 32}.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        path.touch()
        os.truncate(path, MOST_BYTES + 1)
    else:
        path = leaver.write("1-x.json", b"")
    await take_spooled(fleet.engine)
    assert leaver.names == [path.with_suffix(".unreadable").name]


async def test_a_payload_that_fits_no_shape_is_counted_and_gone(
    fleet: Fleet, leaver: Leaver
) -> None:
    leaver.leave("no JSON at all", 1)
    await take_spooled(fleet.engine)
    assert await counted(fleet) == (1, 1, 1)
    assert leaver.names == []


async def test_what_a_doctor_sent_is_not_recorded(fleet: Fleet, leaver: Leaver) -> None:
    leaver.leave(prompt("sample"), 1, "doctor")
    await take_spooled(fleet.engine)
    assert await counted(fleet) == (0, 0, 0)
    assert leaver.names == []


async def test_what_the_disk_refuses_stays_for_the_next_time(
    fleet: Fleet, leaver: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaver.leave(prompt("kept"), 1)

    async def full(*_: Any) -> None:
        raise Storage("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr("fleetd.engine.hooks.deliver._take_one", full)
        await tidy_spool(fleet.engine)
        with pytest.raises(Storage):
            await fleet.do(SystemForget(session_id="s-1"))
        await fleet.do(HookDeliver("live-0001", "claude", prompt("goes on")))
    assert len(leaver.names) == 1
    await tidy_spool(fleet.engine)
    assert leaver.names == []
    assert sorted(await prompts(fleet)) == ["goes on", "kept"]


async def test_a_hook_does_not_wait_for_ever_for_what_comes_first(
    fleet: Fleet, leaver: Leaver, autojump_clock: Any
) -> None:
    leaver.leave(prompt("first"), 1)
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def take_long(task_status: Any) -> None:
            async with fleet.engine.session_queue.spool:
                task_status.started()
                await trio.sleep_forever()

        await nursery.start(take_long)
        with pytest.raises(Unavailable):
            await fleet.do(HookDeliver("live-0001", "claude", prompt("second")))
        nursery.cancel_scope.cancel()
    assert trio.current_time() - begun == pytest.approx(deliver.SPOOL_PATIENCE_S)
    assert await prompts(fleet) == []


async def test_a_clock_that_was_set_back_makes_nothing_happen_in_the_future(
    fleet: Fleet, leaver: Leaver
) -> None:
    leaver.leave(prompt("early"), fleet.clock() + 3_600 * SECOND)
    await take_spooled(fleet.engine)
    await fleet.do(HookDeliver("live-0001", "claude", prompt("now")))
    page = await fleet.do(EventList(type="prompt_submitted"))
    assert all(event.timestamp <= fleet.clock.now for event in page.events)


async def test_nothing_that_is_forgotten_comes_back_from_the_spool(
    tmp_path: Path, fleet: Fleet, leaver: Leaver
) -> None:
    await fleet.do(HookDeliver("live-0001", "claude", prompt("one", cwd=fleet.project)))
    leaver.leave(prompt("two", cwd=fleet.project), fleet.clock())
    leaver.write("x.unreadable", b"three")
    leaver.write("y.part", b"four")
    await fleet.do(SystemForget(project_dir=str(fleet.project)))
    assert leaver.names == []
    await take_spooled(fleet.engine)
    assert (await fleet.do(MissionList())).missions == []
    assert await prompts(fleet) == []


async def test_remains_of_clients_that_died_are_swept_when_they_are_old(
    fleet: Fleet, leaver: Leaver
) -> None:
    leaver.write("young.part", b"x")
    os.utime(leaver.write("old.part", b"x"), (0, 0))
    await tidy_spool(fleet.engine)
    assert leaver.names == ["young.part"]


async def test_status_and_doctor_say_what_waits(fleet: Fleet, leaver: Leaver) -> None:
    file = leaver.leave(prompt("stuck"), fleet.clock())
    leaver.write("x.unreadable", b"?")
    spool = (await fleet.do(HookStatusGet())).spool
    assert (spool.directory, spool.files) == (str(leaver.directory), 1)
    assert spool.size_bytes == file.stat().st_size + 1
    fleet.clock.pass_by(300 * SECOND)

    async def found(*, fix: bool = False) -> list[tuple[bool, bool]]:
        report = await fleet.do(SystemDoctor(fix=fix))
        return [(each.ok, each.fixed) for each in report.findings if each.check == "spool"]

    assert await found() == [(False, False), (False, False)]
    assert await found(fix=True) == [(False, False), (False, True)]
    await take_spooled(fleet.engine)
    assert await found() == [(True, False)]


async def test_a_spool_that_others_may_read_is_found_and_closed(
    fleet: Fleet, leaver: Leaver
) -> None:
    file = leaver.write("x.part", b"x")
    leaver.directory.chmod(0o755)
    file.chmod(0o644)
    report = await fleet.do(SystemDoctor(fix=True))
    mended = {each.subject for each in report.findings if each.check == "permissions"}
    assert mended == {str(leaver.directory), str(file)}
    assert (leaver.directory.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


async def test_what_a_session_said_before_its_process_ended_comes_first(
    fleet: Fleet,
    leaver: Leaver,
    mortal: Callable[[], subprocess.Popen[bytes]],
    nursery: trio.Nursery,
) -> None:
    process = mortal()
    await fleet.do(HookDeliver("live-0001", "claude", prompt("go")))
    await fleet.do(AgentRegister("claude-s-1", "dispatch", session_id="s-1", pid=process.pid))
    over = json.loads(prompt("")) | {"hook_event_name": "SessionEnd", "reason": "exit"}
    leaver.leave(json.dumps(over), fleet.clock())
    nursery.start_soon(timers.watch_processes, fleet.engine)
    process.kill()
    process.wait()
    with trio.fail_after(30):
        while (await fleet.do(AgentGet("claude-s-1"))).status not in ("gone", "lost"):  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert (await fleet.do(AgentGet("claude-s-1"))).status == "gone"
    assert await fleet.events(kind="agent_lost") == []
    nursery.cancel_scope.cancel()


async def test_the_log_tells_of_the_delivery_and_not_of_who_has_the_spool_emptied(
    fleet: Fleet, leaver: Leaver, out: io.StringIO
) -> None:
    leaver.leave("no object", fleet.clock())
    with trace.on_behalf_of(trace.TraceContext(12, "hook.deliver", 7)):
        await tidy_spool(fleet.engine)
        assert str(trace.current()) == "connection 12, request 7 hook.deliver"
    complaint, summary = out.getvalue().splitlines()
    assert complaint.endswith(f'skipped: no object (delivery "{1:032x}")')
    assert summary.endswith(" (connection 12, request 7 hook.deliver)")


# --- the process that an agent is known by --------------------------------------------------------


async def known_process(fleet: Fleet, process: subprocess.Popen[bytes], session: str) -> None:
    """Let a session be known by a process, as a live hook tells it."""
    window = Window(fleet, session)
    window.process = (process.pid, processes.started(process.pid))
    await window.tell(SessionStarted("startup"), PromptSubmitted("Go"))


@pytest.mark.parametrize("status", ["active", "lost"])
async def test_what_waited_takes_no_living_process_away(
    fleet: Fleet, leaver: Leaver, mortal: Callable[[], subprocess.Popen[bytes]], status: str
) -> None:
    process = mortal()
    await known_process(fleet, process, "12f459b8-1")
    fleet.sql("UPDATE agents SET status = :status", status=status)
    leaver.leave(prompt("Go on", "12f459b8-1"), fleet.clock())

    await take_spooled(fleet.engine)

    agent = await fleet.do(AgentGet("claude-12f459b8"))
    assert (agent.pid, agent.status) == (process.pid, "active")


async def test_what_waited_names_no_process_that_is_gone(
    fleet: Fleet, leaver: Leaver, mortal: Callable[[], subprocess.Popen[bytes]]
) -> None:
    process = mortal()
    await known_process(fleet, process, "12f459b8-1")
    process.kill()
    process.wait()
    fleet.sql("UPDATE agents SET status = 'lost'")
    leaver.leave(prompt("Go on", "12f459b8-1"), fleet.clock())

    await take_spooled(fleet.engine)

    assert (await fleet.do(AgentGet("claude-12f459b8"))).pid is None


async def test_a_machine_finds_its_agents_before_it_takes_in_what_they_left(
    tmp_path: Path, leaver: Leaver, mortal: Callable[[], subprocess.Popen[bytes]]
) -> None:
    machine = "0000000000000001"
    async with opened(tmp_path, machine=machine) as fleet:
        process = mortal()
        await known_process(fleet, process, "12f459b8-1")
        fleet.sql("UPDATE agents SET status = 'lost'")
    leaver.leave(prompt("Go on", "12f459b8-1"), 1_000)

    async with opened(tmp_path, machine=machine) as fleet:
        agent = await fleet.do(AgentGet("claude-12f459b8"))
        types = [event.type for event in (await fleet.do(EventList(limit=100))).events]

    assert (agent.pid, agent.status) == (process.pid, "active")
    assert types.count("agent_registered") == 1
    assert types.index("agent_returned") < len(types) - 1 - types[::-1].index("prompt_submitted")
