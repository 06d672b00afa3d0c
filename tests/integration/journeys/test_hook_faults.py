"""Hooks while the daemon is stopped, hangs, restarts: silence in time, and each told thing once."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl import hook_client as client
from fleetctl.client import Fleet
from fleetd.host import paths
from fleetd.protocol.errors import Unavailable
from tests.support import hook_client as support
from tests.support.hook_client import (
    AT_MOST_S,
    HookRun,
    command_of,
    hook,
    spooled,
    start,
    take_in_spool,
)
from tests.support.processes import Daemon

Connect = Callable[[], Fleet]


@pytest.fixture(params=["python", "compiled"], autouse=True)
def _program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one client after the other be what ``hook`` and ``start`` run."""
    monkeypatch.setattr(support, "COMMAND", command_of(request.param))


def prompt(text: str, session: str = "s-1", event: str = "UserPromptSubmit") -> str:
    """Return what Claude Code tells of a prompt."""
    payload = {"session_id": session, "hook_event_name": event, "prompt": text}
    where = {"cwd": os.getcwd(), "transcript_path": f"/c/projects/p/{session}.jsonl"}
    return json.dumps(payload | where)


def prompts(daemon: Daemon) -> list[str]:
    """Return the prompts that were recorded, in order, once the spool is empty."""
    with Fleet(daemon.socket) as connection:
        while spooled():
            with contextlib.suppress(Unavailable):
                take_in_spool(connection)
        page = connection.call_raw("event.list", {"type": "prompt_submitted", "limit": 1_000})
        return [event["data"]["prompt"] for event in page["events"]]


def deliveries(daemon: Daemon, figure: str = "deliveries") -> int:
    with Fleet(daemon.socket) as connection:
        rows = connection.call_raw("hook.status")["harnesses"]
        return sum(row[figure] for row in rows if row["harness"] == "claude")


def fill_spool(count: int) -> None:
    """Leave what as many calls of the client would, since the beginning of time."""
    paths.spool_path().mkdir(parents=True)
    for number in range(count):
        name = f"{number + 1:013}-{number:032x}"
        line = client.frame(name, ["claude"], 1, bytearray(prompt(f"{number}").encode()))
        (paths.spool_path() / f"{name}.json").write_bytes(line)


def test_a_daemon_that_runs_takes_everything_at_once(daemon: Daemon) -> None:
    for number in range(3):
        assert hook(prompt(f"{number}")).silent
    assert spooled() == []
    assert prompts(daemon) == ["0", "1", "2"]


def test_what_is_told_while_the_daemon_is_stopped_is_there_in_order_after_its_start(
    daemon: Daemon,
) -> None:
    hook(prompt("before"))
    daemon.stop()
    for number in range(5):
        done = hook(prompt(f"{number}"))
        assert done.silent
        assert done.seconds < AT_MOST_S
    assert len(spooled()) == 5
    daemon.start()
    assert spooled() == []
    hook(prompt("after"))
    assert prompts(daemon) == ["before", "0", "1", "2", "3", "4", "after"]
    assert deliveries(daemon) == 7
    assert deliveries(daemon, "from_spool") == 5


def test_a_daemon_that_hangs_gets_line_and_spooled_copy_and_counts_one(daemon: Daemon) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        done: list[HookRun] = []
        calls = [
            threading.Thread(target=lambda text: done.append(hook(text)), args=[prompt(f"{n}")])
            for n in range(6)
        ]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        assert all(each.silent for each in done)
        assert time.monotonic() - begun < AT_MOST_S
        assert len(spooled()) == 6
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    hook(prompt("after"))
    assert Counter(prompts(daemon)) == Counter([*"012345", "after"])
    assert deliveries(daemon) == 7


def test_a_daemon_that_hangs_before_a_compaction_is_given_more_time(daemon: Daemon) -> None:
    hook(prompt("work"))
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    threading.Timer(1.5, daemon.process.send_signal, [signal.SIGCONT]).start()
    done = hook(prompt("", event="PreCompact"))
    assert done.silent
    assert 1.3 < done.seconds < AT_MOST_S + 3
    assert spooled() == []
    assert deliveries(daemon) == 2


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
def test_a_daemon_that_restarts_under_load_loses_nothing(
    daemon: Daemon, end: Callable[[Daemon], None]
) -> None:
    slow: list[float] = []

    def work(worker: int) -> None:
        for number in range(15):
            done = hook(prompt(f"{worker}-{number}", session=f"s-{worker}"))
            if not done.silent or done.seconds > AT_MOST_S:
                slow.append(done.seconds)

    workers = [threading.Thread(target=work, args=[worker]) for worker in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(2):
        time.sleep(0.2)
        end(daemon)
        time.sleep(0.1)
        daemon.start()
    for worker in workers:
        worker.join()
    assert slow == []
    told = prompts(daemon)
    assert sorted(told) == sorted(f"{w}-{n}" for w in range(4) for n in range(15))
    assert deliveries(daemon) == 60
    for worker in range(4):
        assert [each for each in told if each.startswith(f"{worker}-")] == [
            f"{worker}-{number}" for number in range(15)
        ]


def test_a_full_spool_gives_the_oldest_and_all_the_rest_is_taken_in(daemon: Daemon) -> None:
    daemon.stop()
    fill_spool(1_000)
    for number in range(3):
        done = hook(prompt(f"new {number}"))
        assert done.silent
        assert done.seconds < AT_MOST_S
    assert len(spooled()) == 1_000
    daemon.start()
    done = hook(prompt("live"))
    assert done.silent
    assert done.seconds < AT_MOST_S
    told = prompts(daemon)
    assert told == [*(f"{n}" for n in range(3, 1_000)), "new 0", "new 1", "new 2", "live"][:1_000]
    assert deliveries(daemon) == 1_001


def test_a_daemon_that_is_killed_while_it_takes_in_the_spool_takes_each_once(
    daemon: Daemon,
) -> None:
    daemon.stop()
    fill_spool(300)
    for left in range(270, 0, -90):
        with daemon.log.open("ab") as log:
            daemon.process = subprocess.Popen(
                [sys.executable, "-m", "fleetd"], stdout=log, stderr=log
            )
        while len(spooled()) > left:
            assert daemon.process.poll() is None
            time.sleep(0.001)
        daemon.kill()
    daemon.start()
    assert prompts(daemon) == [f"{number}" for number in range(300)]
    assert deliveries(daemon) == 300


@pytest.mark.parametrize(
    "said",
    [b"", b"{", b"\xff\xfe\x00", b"[" * 500_000, b"{}", b'{"session_id":"\\ud800"}', b"null"],
)
def test_what_fits_no_shape_is_counted_and_disturbs_nobody(daemon: Daemon, said: bytes) -> None:
    done = hook(said)
    assert done.silent
    assert spooled() == []
    assert deliveries(daemon) == 1


def test_a_large_payload_is_taken_live_and_a_huge_one_by_way_of_the_spool(daemon: Daemon) -> None:
    large, huge = "l" * 3_000_000, "h" * 17_000_000
    assert hook(prompt(large)).silent
    assert spooled() == []
    assert hook(prompt(huge)).silent
    assert len(spooled()) == 1
    assert [text[0] for text in prompts(daemon)] == ["l", "h"]
    assert deliveries(daemon) == 2


def test_a_stdin_that_is_never_closed_is_told_by_way_of_the_spool(daemon: Daemon) -> None:
    process = start()
    assert process.stdin is not None
    process.stdin.write(prompt("open").encode())
    process.stdin.flush()
    assert process.wait(30) == 0
    process.communicate()
    assert prompts(daemon) == ["open"]


def test_a_stdout_that_nobody_reads_loses_nothing(daemon: Daemon) -> None:
    process = start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(prompt("unread").encode())
    process.stdin.close()
    assert process.wait(30) == 0
    assert process.stderr is not None
    process.stderr.close()
    assert prompts(daemon) == ["unread"]


def test_a_spool_that_cannot_be_written_does_not_keep_a_daemon_from_listening(
    daemon: Daemon, home: Path
) -> None:
    (home / "state" / "fleet").mkdir()
    (home / "state" / "fleet" / "spool").write_text("in the way")
    assert hook(prompt("live")).silent
    assert deliveries(daemon) == 1
    daemon.stop()
    done = hook(prompt("lost"))
    assert done.silent
    assert done.seconds < AT_MOST_S
    daemon.start()
    assert deliveries(daemon) == 1


# Does what systemd does on the first connection: descriptor 3 becomes the daemon's socket.
PASS_SOCKET = """
import os, select, sys
select.select([int(sys.argv[1])], [], [])
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, "-m", "fleetd"])
"""


def test_the_first_hook_starts_a_daemon_that_waits_for_its_socket(home: Path) -> None:
    path = home / "run" / "d.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        command = [sys.executable, "-c", PASS_SOCKET, str(listener.fileno())]
        with (home / "daemon.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, pass_fds=[listener.fileno()]
            )
        running = Daemon(socket=path, log=home / "daemon.log", process=process)
        try:
            done = hook(prompt("first"))
            assert done.silent
            assert done.seconds < AT_MOST_S
            hook(prompt("second"))
            assert Counter(prompts(running)) == Counter(["first", "second"])
            assert deliveries(running) == 2
        finally:
            running.stop()
