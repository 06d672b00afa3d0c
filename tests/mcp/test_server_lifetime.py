"""The server lives as long as its stdin: with a daemon or without, whatever it is told."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp.conftest import Start
from tests.support.processes import Daemon, fleetctl

SERVER = (sys.executable, "-P", "-m", "fleetctl", "mcp")
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def start() -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(SERVER, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_it_ends_when_stdin_is_closed(home: Path) -> None:
    nothing = subprocess.DEVNULL
    done = subprocess.run(SERVER, stdin=nothing, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_it_ends_when_stdin_is_closed_in_the_middle_of_a_wait(daemon: Daemon) -> None:
    assert fleetctl("agent", "start", "bob").status == 0
    assert fleetctl("lock", "acquire", "a.py", "--agent", "bob").status == 0
    with start() as server:
        assert server.stdin is not None
        assert server.stdout is not None
        wait = {"name": "lock", "arguments": {"file": "a.py", "wait_s": 50}}
        said = [
            HELLO,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": wait},
        ]
        server.stdin.write("".join(json.dumps(line) + "\n" for line in said))
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "fleet"
        server.stdin.close()
        assert server.wait(20) == 0


def test_garbage_is_answered_or_passed_over_and_stdout_carries_the_protocol_only(
    home: Path,
) -> None:
    garbage = ["", "nonsense", "[]", "{}", '{"jsonrpc": "2.0"', "\x00\x01", '"x"', "[" * 5_000]
    garbage += [
        '{"jsonrpc":"2.0","id":7,"method":"no/such"}',
        '{"jsonrpc":"2.0","id":[],"method":1}',
    ]
    last = {"jsonrpc": "2.0", "id": 99, "method": "ping"}
    with start() as server:
        lines = [json.dumps(HELLO), *garbage, json.dumps(last)]
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdin.write("\n".join(lines) + "\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline())]
        while answers[-1].get("id") != 99:
            answers.append(json.loads(server.stdout.readline()))
        out, err = server.communicate(timeout=60)
        assert server.returncode == 0
    assert answers[0]["id"] == 1
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(home: Path, number: signal.Signals) -> None:
    with start() as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(HELLO) + "\n")
        server.stdin.flush()
        assert server.stdout.readline()
        server.send_signal(number)
        assert server.wait(10) == -number
        assert server.stderr is not None
        assert server.stderr.read() == ""


async def test_without_a_daemon_it_says_what_to_do_and_finds_it_later(
    agent: Start, daemon: Daemon
) -> None:
    daemon.stop()
    async with agent("--agent", "alice") as alice:
        told = await alice.fails("lock", file="a.py")
        assert told.startswith("fleetd is not running.")
        assert "Continue your own work" in told
        assert "fleetctl daemon start" in told
        assert len((await alice.client.list_resources()).resources) == 3
        daemon.start()
        assert "You hold a.py" in await alice.does("lock", file="a.py")


async def test_a_daemon_that_is_killed_and_restarted_is_not_noticed(
    agent: Start, daemon: Daemon
) -> None:
    async with agent("--agent", "alice") as alice:
        await alice.does("plan", goal="Add login", sorties=[{"title": "Form"}])
        for file in ("a.py", "b.py", "c.py"):
            daemon.kill()
            daemon.spawn()
            assert "You hold" in await alice.does("lock", file=file)
        assert "Goal: Add login" in await alice.does("mission")
    daemon.wait_until_ready()


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (("--agent", "no name"), 2, "is not a name"),
        (("--agent",), 2, "expected one argument"),
        (("begin",), 2, "begin"),
    ],
)
def test_a_wrong_command_line_is_refused(home: Path, options, status, told) -> None:
    done = fleetctl("mcp", *options)
    assert (done.status, done.out) == (status, "")
    assert told in done.err


def test_whoever_types_it_into_a_terminal_is_told_what_it_is_for(home: Path) -> None:
    leader, terminal = os.openpty()
    with os.fdopen(terminal, "rb") as stdin:
        done = subprocess.run(SERVER, stdin=stdin, capture_output=True, text=True, check=False)
    os.close(leader)
    assert done.returncode == 2
    assert "fleetctl mcp install" in done.stderr


def test_without_the_package_it_says_how_to_get_it(home: Path) -> None:
    code = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'mcp' else found(name)\n"
        "from fleetctl import cli\n"
        "sys.exit(cli.main(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Install it with: " in done.stderr
    assert "-m pip install 'mcp>=2.3" in done.stderr
