"""``fleetctl notify run`` beside a real daemon: hooks come in, and people are told."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.requests.attention import AttentionList
from tests.support.hook_client import hook
from tests.support.notify import FakeBus, FakeHook
from tests.support.processes import Daemon

WAIT_S = 60.0


class Run:
    """A running ``fleetctl notify run``; ``err`` is what it has logged."""

    def __init__(self, home: Path, *options: str) -> None:
        self._err = home / "notify.err"
        self._out = home / "notify.out"
        with self._err.open("ab") as err, self._out.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleetctl", "notify", "run", "--json", *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text().splitlines()]

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(by)
        try:
            return self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def notify(home: Path) -> Iterator[Callable[..., Run]]:
    """Return a function that starts it; none outlives the test."""
    runs: list[Run] = []

    def start(*options: str) -> Run:
        runs.append(Run(home, *options))
        return runs[-1]

    yield start
    for each in runs:
        each.process.kill()
        each.process.wait()


@pytest.fixture
def receiver() -> Iterator[FakeHook]:
    with FakeHook().running() as found:
        yield found


def say(event: str, session: str = "s-1", **more: Any) -> None:
    """Report an event as Claude Code does."""
    cwd = str(Path.cwd())
    payload = {"hook_event_name": event, "session_id": session, "cwd": cwd, **more}
    done = hook(json.dumps(payload))
    assert done.status == 0, done


def ask(session: str = "s-1", command: str = "npm publish") -> None:
    say("PermissionRequest", session, tool_name="Bash", tool_input={"command": command})


def go_on(session: str = "s-1") -> None:
    say("PostToolUse", session, tool_name="Read", tool_input={"file_path": "a"}, tool_response={})


def until(holds: Callable[[], bool], run: Run) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert run.process.poll() is None, run.err
        assert time.monotonic() < deadline, run.err
        time.sleep(0.02)


def test_a_person_is_told_once_on_each_channel(
    home: Path,
    daemon: Daemon,
    connect: Callable[[], Fleet],
    notify: Callable[..., Run],
    receiver: FakeHook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jeepney")
    say("SessionStart", source="startup")
    with FakeBus(home / "bus").running() as bus:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus.address)
        run = notify(
            *("--desktop", "--webhook", receiver.url),
            *("--webhook", "http://127.0.0.1:1/SECRET", "--command", "sleep 600"),
            *("--command", f"cat >> {home}/told"),
        )
        ask(command="npm publish <b>\x1b[2J")
        until(lambda: len(receiver.got) == 1, run)
        (agent,) = connect().call(AttentionList(waiting=True)).agents
        # The same state again, by another hook.
        say("Notification", notification_type="permission_prompt", message="Claude needs you")
        go_on()
        ask(command="git push")
        until(lambda: len(receiver.got) == 2 and len(bus.shown) == 2, run)
        until(lambda: len((home / "told").read_text().splitlines()) == 2, run)
        assert run.end() == 0
    assert [each["agent"] for each in receiver.got] == [agent.agent_id] * 2
    assert receiver.got[0]["since"] < receiver.got[1]["since"]
    assert [each[3] for each in bus.shown] == [f"{agent.agent_id}: needs permission"] * 2
    first = bus.shown[0][4]
    assert "npm publish &lt;b&gt;" in first
    assert "\x1b" not in first
    assert [each["id"] for each in run.told] == [each["id"] for each in receiver.got]
    assert "webhook 2: not sent, retrying: Connection refused" in run.err
    assert "webhook: 2 sent, 0 dropped" in run.err
    assert "SECRET" not in run.err


def test_what_a_subagent_needed_for_a_moment_is_not_told(
    daemon: Daemon, connect: Callable[[], Fleet], notify: Callable[..., Run], receiver: FakeHook
) -> None:
    run = notify("--webhook", receiver.url)
    say("SessionStart", source="startup")
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t"}
    of_subagent = {"agent_id": "sub1", "agent_type": "Explore"}
    say("SubagentStart", **of_subagent)
    say("PermissionRequest", **of_subagent, **call)
    (asking,) = connect().call(AttentionList(waiting=True)).agents
    assert asking.needs == "permission"
    time.sleep(0.5)  # the notifier has read it, and waits for two seconds
    say("PostToolUse", **of_subagent, **call, tool_response={})
    assert connect().call(AttentionList(waiting=True)).agents == []
    time.sleep(0.5)  # it has read that, too, and nothing else
    ask("s-2")
    until(lambda: bool(receiver.got), run)
    assert run.end() == 0
    (told,) = receiver.got
    assert told["agent"] != asking.agent_id


def test_a_restart_of_the_daemon_loses_no_state_and_tells_none_twice(
    daemon: Daemon, notify: Callable[..., Run], receiver: FakeHook
) -> None:
    run = notify("--webhook", receiver.url)
    ask("s-1")
    until(lambda: len(receiver.got) == 1, run)
    daemon.kill()
    ask("s-2")  # into the spool
    until(lambda: "fleetd is not running" in run.err, run)
    daemon.start()
    ask("s-3")
    until(lambda: len(receiver.got) == 3, run)
    assert "fleetd answers again" in run.err
    assert run.end() == 0
    assert len({each["agent"] for each in receiver.got}) == 3


def test_a_restart_of_the_notifier_tells_nothing_twice(
    daemon: Daemon, notify: Callable[..., Run], receiver: FakeHook
) -> None:
    ask("s-1")
    run = notify("--webhook", receiver.url)
    until(lambda: len(receiver.got) == 1, run)
    assert run.end() == 0
    ask("s-2")
    again = notify("--webhook", receiver.url)
    until(lambda: len(receiver.got) == 2, again)
    assert again.end(signal.SIGINT) == 0
    assert "Traceback" not in again.err
    assert len({each["id"] for each in receiver.got}) == 2


def test_a_state_of_another_store_is_told(
    home: Path, daemon: Daemon, notify: Callable[..., Run], receiver: FakeHook
) -> None:
    run = notify("--webhook", receiver.url)
    ask("s-1")
    until(lambda: len(receiver.got) == 1, run)
    daemon.stop()
    for each in (home / "data").iterdir():
        if each.is_file():
            each.unlink()
    daemon.start()
    ask("s-1")
    until(lambda: len(receiver.got) == 2, run)
    assert run.end() == 0


def test_a_notifier_waits_for_a_daemon_that_is_not_there(
    home: Path, notify: Callable[..., Run], receiver: FakeHook
) -> None:
    run = notify("--webhook", receiver.url)
    until(lambda: "fleetd is not running; retrying.\n" in run.err, run)
    daemon = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log")
    daemon.start()
    try:
        ask()
        until(lambda: len(receiver.got) == 1, run)
        assert run.end() == 0
    finally:
        daemon.stop()
