"""The hook clients against a server that does what a test wants: silence, deadlines, the spool.

Every test is for the client in Python, the one in C, and that one with the checks of its compiler.
"""

import contextlib
import fcntl
import json
import os
import pwd
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from json.decoder import scanstring
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fleetctl import hook_client as client
from fleetd.harness.detect import ENVIRONMENT
from fleetd.host import paths
from fleetd.protocol.framing import HOOK_BEGINS
from tests.support import hook_client as support
from tests.support.hook_client import (
    AT_MOST_S,
    CLIENTS,
    HOOK,
    IN_PYTHON,
    SOURCE,
    command_of,
    compiled,
    hook,
    spooled,
    start,
    without,
)

PAYLOAD = '{"hook_event_name": "PostToolUse", "session_id": "s-1"}'
ACCEPTED = b'{"jsonrpc":"2.0","result":{"stdout":"","exit_code":0},"id":1}\n'
REFUSED = (
    b'{"jsonrpc":"2.0","error":{"code":-32005,"message":"The disk is full.",'
    b'"data":{"kind":"storage"}},"id":1}\n'
)
NAME = re.compile(r"(\d{13})-([0-9a-f]{32})\.json")


@pytest.fixture(params=CLIENTS, autouse=True)
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have one client after the other be what ``hook`` and ``start`` run."""
    monkeypatch.setattr(support, "COMMAND", command_of(request.param))
    return request.param


in_python_only = pytest.mark.parametrize("program", ["python"], indirect=True)


class HookServer:
    """Answers every line with the same bytes, after a while; None is no answer at all."""

    def __init__(self, path: Path) -> None:
        self.lines: list[bytes] = []
        self.reply: bytes | None = ACCEPTED
        self.after_s = 0.0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._kept.append(connection)
                with connection.makefile("rb") as lines:
                    self.lines.append(lines.readline())
                if self.reply is not None:
                    time.sleep(self.after_s)
                    with contextlib.suppress(OSError):
                        connection.sendall(self.reply)
                    connection.close()

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters of the newest request."""
        return json.loads(self.lines[-1])["params"]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._kept):
            each.close()


@pytest.fixture
def server(home: Path) -> Iterator[HookServer]:
    server = HookServer(home / "run" / "d.sock")
    yield server
    server.close()


def the_spooled(payload: str = PAYLOAD) -> dict[str, Any]:
    """Return the one frame in the spool, which must hold the payload."""
    (file,) = spooled()
    frame = json.loads(file.read_bytes())
    assert frame["params"]["payload"] == payload
    return frame


# What it is


@in_python_only
def test_the_client_is_short_and_loads_nothing_but_modules_in_c(home: Path) -> None:
    source = Path(client.__file__)
    assert len([*HOOK.read_text().splitlines(), *source.read_text().splitlines()]) < 142

    def loaded(*arguments: str) -> set[str]:
        command = [sys.executable, "-X", "importtime", "-I", "-S", *arguments]
        run = subprocess.run(command, input=b"{}", capture_output=True, check=True)
        return {line.rpartition("|")[2].strip() for line in run.stderr.decode().splitlines()}

    loaded(str(HOOK), "claude")  # it may have no bytecode yet
    more = loaded(str(HOOK), "claude") - loaded("-c", "pass")
    assert more <= {"_json", "_signal", "_socket", "posix", "pwd", "time"}


@in_python_only
@pytest.mark.parametrize(
    "spoil",
    [
        lambda _bytecode: b"",
        lambda bytecode: bytecode[:16] + b"\x00" * (len(bytecode) - 16),
        lambda bytecode: bytecode[:200],
    ],
)
def test_bytecode_that_a_power_cut_spoiled_keeps_nobody_from_being_heard(
    server: HookServer, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    for each in (HOOK, Path(client.__file__)):
        shutil.copy(each, tmp_path)
    command = [sys.executable, "-I", "-S", str(tmp_path / HOOK.name), "claude"]
    subprocess.run(command, input=b"{}", check=True)
    [kept] = (tmp_path / "__pycache__").iterdir()
    kept.write_bytes(spoil(kept.read_bytes()))

    done = subprocess.run(command, input=b"{}", capture_output=True, check=True)

    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(server.lines) == 2


@pytest.fixture
def places(program: str) -> tuple[str, ...]:
    """Return a command that prints where the client looks for the socket and for the spool."""
    if program == "python":
        code = (
            f"import os, sys; sys.path.insert(0, {str(HOOK.parent)!r}); import hook_client\n"
            "for place in hook_client.places(): os.write(1, place + b'\\n')"
        )
        return (*IN_PYTHON[:-1], "-c", code)
    return (str(compiled(source=PLACES)),)


PLACES = f"""
#define main client
#include "{SOURCE}"
#undef main
int main(void) {{
    char *sock, *spool;
    return !places(&sock, &spool) || printf("%s\\n%s\\n", sock, spool) < 0;
}}
"""


@pytest.mark.parametrize("program", ["python", "compiled"], indirect=True)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"FLEET_SOCKET": None},
        {"FLEET_SOCKET": ""},
        {"FLEET_SOCKET": "~/s"},
        {"FLEET_SOCKET": "~/s", "HOME": None},
        {"FLEET_SOCKET": "~/s", "HOME": ""},
        {"FLEET_SOCKET": f"~{pwd.getpwuid(os.getuid()).pw_name}/s"},
        {"FLEET_SOCKET": "~"},
        {"FLEET_SOCKET": "~nobody-at-all/s"},
        {"FLEET_SOCKET": "~daemon/s"},
        {"FLEET_SOCKET": None, "XDG_RUNTIME_DIR": None},
        {"FLEET_SOCKET": None, "XDG_RUNTIME_DIR": "relative"},
        {"FLEET_SOCKET": None, "XDG_RUNTIME_DIR": None, "XDG_STATE_HOME": None},
        {"XDG_STATE_HOME": None},
        {"XDG_STATE_HOME": "relative"},
        {"XDG_STATE_HOME": None, "HOME": None},
        {"XDG_STATE_HOME": None, "HOME": ""},
        {"XDG_STATE_HOME": None, "HOME": "relative"},
        {"XDG_STATE_HOME": "/tmp/é and space"},
    ],
)
def test_client_and_daemon_agree_where_things_are_also_in_the_home_of_a_named_user(
    home: Path, places: tuple[str, ...], changes: dict[str, str | None]
) -> None:
    env = without(*changes) | {name: value for name, value in changes.items() if value is not None}
    code = (
        "import os; from fleetd.host import paths\n"
        "for place in paths.socket_path(), paths.spool_path():"
        " os.write(1, os.fsencode(place) + b'\\n')"
    )
    theirs = (sys.executable, "-c", code)
    ours, theirs = (
        subprocess.run(command, env=env, capture_output=True, check=True).stdout
        for command in (places, theirs)
    )
    assert ours.count(b"\n") == 2
    assert ours == theirs


# What it sends


@pytest.mark.parametrize(
    "payload",
    [
        PAYLOAD,
        "",
        "{",
        json.dumps({"pretty": ["printed"], "é": "\u2028😀"}, indent=2, ensure_ascii=False),
        "\x00\x01\x1f\x7f\r\n\\\"'",
        "[" * 100_000,
        '"},"id":1}\n' * 1_000,
        "x" * 3_000_000,
    ],
)
def test_what_is_said_arrives_as_it_is(server: HookServer, payload: str) -> None:
    assert hook(payload).silent
    assert server.params["payload"] == payload
    assert spooled() == []


def test_bytes_that_are_no_text_arrive_with_gaps(server: HookServer) -> None:
    assert hook(b"\xff\xfe{\x00\xed\xa0\x80").silent
    assert server.params["payload"].count("{") == 1
    assert "\ufffd" in server.params["payload"]


def test_a_frame_says_who_sends_and_begins_as_the_daemon_expects(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_AGENT_ID", 'a "quoted" é')
    monkeypatch.setenv("CURSOR_VERSION", "")
    monkeypatch.setenv("SECRET", "x")
    before = time.monotonic_ns() // 1_000
    hook(PAYLOAD, "codex", "enforce-locks", "é")
    assert server.lines[-1].startswith(HOOK_BEGINS)
    params = server.params
    assert re.fullmatch(r"[0-9a-f]{32}", params["delivery_id"])
    assert before < params["begun_us"] < time.monotonic_ns() // 1_000
    assert (params["harness"], params["args"]) == ("codex", ["enforce-locks", "é"])
    assert params["env"] == {"FLEET_AGENT_ID": 'a "quoted" é'}


def test_the_variables_that_tell_who_sends_are_passed_on(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"FLEET_AGENT_ID", "FLEET_MISSION_ID", *ENVIRONMENT}
    for name in (*names, "FLEET_SECRET"):
        monkeypatch.setenv(name, f"of {name}")
    hook(PAYLOAD)
    assert set(client.ENV.split()) == names
    assert list(server.params["env"].items()) == [(n, f"of {n}") for n in client.ENV.split()]


def of_pieces(random: Random, pieces: Sequence[bytes], *, at_most: int) -> bytes:
    return b"".join(random.choices(pieces, k=random.randrange(at_most)))


# Text, what JSON escapes, and bytes that are no UTF-8 in every way there is.
PIECES = (
    *(bytes([byte]) for byte in range(1, 256)),
    *(b"\xc3\xa9", b"\xe2\x80\xa8", b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf", b"\xf4\x8f\xbf\xbf"),
    *(b"\xe0\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x80\x80", b"\xf0\x9f\x98", b"\xf4\x90"),
    *(b"a long stretch of text", b'"quoted"', b"\\", b"\n"),
)
ESCAPES = (
    *(b'\\"', b"\\\\", b"\\/", b"\\b", b"\\f", b"\\n", b"\\r", b"\\t", b"\\u0000", b"\\u00e9"),
    *(b"\\u2028", b"\\uFfFf", b"\\ud83d\\ude00", b"\\ud83d", b"\\ude00", b"\\ud83dx"),
    *(b"\\ud83d\\ud83d", b"text", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\x7f"),
)
BROKEN = (
    *(b"\\x", b"\\u12", b"\\u+123", b"\\ud83d\\u12 4", b"\\", b'"'),
    *(b"\x01", b"\n", b"\xff", b"\xed\xa0\x80"),
)


def test_a_line_is_that_of_the_client_in_python_whatever_bytes_are_said(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(22)
    pieces = (*PIECES, b"\0")
    for _ in range(100):
        said = of_pieces(random, pieces, at_most=random.choice([10, 1_000]))
        words = [os.fsdecode(of_pieces(random, PIECES, at_most=10)) for _ in range(3)]
        agent = of_pieces(random, PIECES, at_most=10)
        monkeypatch.setitem(os.environb, b"FLEET_AGENT_ID", agent)
        monkeypatch.setattr(client.posix, "environ", {b"FLEET_AGENT_ID": agent})
        assert hook(said, *words).silent
        params = server.params
        expected = client.frame(params["delivery_id"], words, params["begun_us"], bytearray(said))
        assert server.lines[-1] == expected


def test_an_answer_is_read_as_the_client_in_python_reads_it(server: HookServer) -> None:
    random = Random(22)
    for number in range(100):
        pieces = ESCAPES if number % 2 else (*ESCAPES, *BROKEN)
        answer = of_pieces(random, pieces, at_most=random.choice([4, 40]))
        ending = random.choice([b'","exit_code":0},"id":1}\n'] * 3 + [b'"', b"", b"\xff"])
        server.reply = b'{"jsonrpc":"2.0","result":{"stdout":"' + answer + ending
        text, printed, kept = server.reply.decode(errors="surrogateescape"), b"", 1
        with contextlib.suppress(ValueError):
            server.reply.decode()
            printed = scanstring(text, text.index('"stdout":"') + 10)[0].encode(errors="replace")
            kept = 0
        done = hook(PAYLOAD)
        assert (done.status, done.out, done.err) == (0, printed, b"")
        assert len(spooled()) == kept
        for file in spooled():
            file.unlink()


def test_a_large_answer_is_printed_whole(server: HookServer) -> None:
    server.reply = ACCEPTED.replace(b'""', b'"' + b"\\u00e9\\n" * 50_000 + b'"')
    assert hook(PAYLOAD).out == "é\n".encode() * 50_000
    assert spooled() == []


@pytest.mark.parametrize("said", ['{"a": "é\\n\\u0000"}', "plain", '\\ " \U0001f600 \x00'])
def test_the_answer_is_printed_as_it_is(server: HookServer, said: str) -> None:
    reply = {"jsonrpc": "2.0", "result": {"stdout": said, "exit_code": 0}, "id": 1}
    for ascii_only in (True, False):
        text = json.dumps(reply, separators=(",", ":"), ensure_ascii=ascii_only)
        server.reply = text.encode() + b"\n"
        done = hook(PAYLOAD)
        assert (done.status, done.out, done.err) == (0, said.encode(), b"")
    assert spooled() == []


# What goes wrong


def test_without_a_daemon_the_frame_waits_in_the_spool(home: Path) -> None:
    before = time.time_ns() // 1_000_000
    done = hook(PAYLOAD, "claude", "word")
    assert done.silent
    assert done.seconds < AT_MOST_S
    frame = the_spooled()
    (file,) = spooled()
    name = NAME.fullmatch(file.name)
    assert name is not None
    assert before <= int(name[1]) <= time.time_ns() // 1_000_000
    assert frame["params"]["delivery_id"] == name[2]
    assert file.read_bytes().startswith(HOOK_BEGINS)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "reply", [REFUSED, b"", b"garbage\n", b'{"jsonrpc":"2.0","result":{"stdout":"cut', b"\xff\n"]
)
def test_what_the_daemon_did_not_take_waits_in_the_spool(server: HookServer, reply: bytes) -> None:
    server.reply = reply
    assert hook(PAYLOAD).silent
    assert the_spooled()["params"] == server.params


def test_of_what_matters_at_once_only_nothing_is_left_in_the_spool(server: HookServer) -> None:
    server.reply = REFUSED
    assert hook(PAYLOAD, "gemini", "no-spool").silent
    assert server.params["args"] == ["no-spool"]
    assert spooled() == []


def test_of_what_matters_at_once_only_nothing_is_left_without_a_daemon(home: Path) -> None:
    assert hook(PAYLOAD, "gemini", "no-spool").silent
    assert spooled() == []


def test_a_daemon_that_hangs_is_not_waited_for(server: HookServer) -> None:
    server.reply = None
    done = hook(PAYLOAD)
    assert done.silent
    assert 0.8 < done.seconds < AT_MOST_S
    assert the_spooled()["params"] == server.params


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ('{"hook_event_name":"PreCompact"}', ()),
        ("{}", ("preCompact",)),
        ('{"a":"PreCompress"}', ()),
    ],
)
def test_before_a_compaction_the_daemon_has_more_time(
    server: HookServer, payload: str, words: tuple[str, ...]
) -> None:
    server.reply, server.after_s = ACCEPTED.replace(b'""', b'"late"'), 1.3
    assert hook(payload, "claude", *words).out == b"late"
    assert hook("{}").silent
    the_spooled("{}")


def test_a_full_backlog_is_not_waited_for(home: Path) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(home / "run" / "d.sock"))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting.setblocking(False)
            waiting.connect_ex(str(home / "run" / "d.sock"))
        done = hook(PAYLOAD)
    assert done.silent
    assert done.seconds < AT_MOST_S
    the_spooled()


def test_a_stdin_that_is_never_closed_is_not_waited_for(server: HookServer) -> None:
    begun = time.monotonic()
    process = start()
    assert process.stdin is not None
    process.stdin.write(PAYLOAD.encode())
    process.stdin.flush()
    assert process.wait(30) == 0
    assert time.monotonic() - begun < AT_MOST_S
    assert process.communicate() == (b"", b"")
    the_spooled()


def test_a_stdin_that_trickles_before_a_compaction_ends_too(server: HookServer) -> None:
    begun = time.monotonic()
    process = start()
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b'{"hook_event_name":"PreCompact"')
        while process.poll() is None and time.monotonic() - begun < 30:
            process.stdin.write(b" ")
            process.stdin.flush()
            time.sleep(0.05)
    assert process.wait(30) == 0
    assert time.monotonic() - begun < AT_MOST_S + 4
    with contextlib.suppress(BrokenPipeError):
        process.communicate()
    assert len(spooled()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_client_that_is_told_to_end_leaves_the_frame_behind(
    server: HookServer, number: int
) -> None:
    server.reply = None
    process = start()
    assert process.stdin is not None
    process.stdin.write(PAYLOAD.encode())
    process.stdin.close()
    while not server.lines:
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(30) == 0
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    the_spooled()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_client_that_is_told_to_end_while_it_listens_leaves_what_it_heard(
    server: HookServer, number: int
) -> None:
    process = start()
    assert process.stdin is not None
    process.stdin.write(b'{"half":')
    process.stdin.flush()
    unread = b"any"
    while unread != bytes(4):
        unread = fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4))
    time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) == 0
    assert process.communicate() == (b"", b"")
    the_spooled('{"half":')
    assert server.lines == []


def test_one_that_is_told_to_end_while_it_leaves_its_frame_behind_finishes_first(
    server: HookServer,
) -> None:
    server.reply = None
    # A few megabytes take a while to write, so that some of the signals come in the middle.
    process = start()
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(b"x" * 8_000_000)
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert process.returncode == 0
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    [frame] = spooled()
    # What was in the pipe when the first signal came is not read any more.
    assert frame.stat().st_size > 7_000_000


def test_alarms_that_the_parent_blocked_or_ignored_ring_all_the_same(server: HookServer) -> None:
    server.reply = None

    def deafen() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])

    done = hook(PAYLOAD, preexec_fn=deafen)
    assert done.silent
    assert done.seconds < AT_MOST_S


@pytest.mark.parametrize("closed", ["0<&-", ">&-", "2>&-", "0<&- >&- 2>&-"])
def test_closed_descriptors_disturb_nobody(server: HookServer, closed: str) -> None:
    server.reply = ACCEPTED.replace(b'""', b'"answer"')
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" claude {closed}', "sh", *support.COMMAND],
        input=PAYLOAD.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert all(line.endswith(b'"id":1}\n') for line in server.lines)


def test_a_stdout_that_nobody_reads_any_more_is_no_failure(server: HookServer) -> None:
    server.reply = ACCEPTED.replace(b'""', b'"' + b"x" * 60_000 + b'"')
    process = start()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write(PAYLOAD.encode())
    process.stdin.close()
    assert process.wait(30) == 0
    with process.stderr:
        assert process.stderr.read() == b""


@pytest.mark.parametrize("kind", ["file", "directory", "datagram", "long", "dangling"])
def test_a_socket_of_the_wrong_kind_is_no_daemon(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "run" / "d.sock"
    with contextlib.ExitStack() as stack:
        if kind == "file":
            path.write_text("")
        elif kind == "directory":
            path.mkdir()
        elif kind == "datagram":
            sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            sock.bind(str(path))
        elif kind == "dangling":
            path.symlink_to("nowhere")
        else:
            monkeypatch.setenv("FLEET_SOCKET", str(home / ("x" * 120)))
        assert hook(PAYLOAD).silent
    the_spooled()


def test_more_than_a_line_may_hold_goes_to_the_spool_at_once(server: HookServer) -> None:
    payload = "x" * 17 * 1024 * 1024
    assert hook(payload).silent
    assert server.lines in ([], [b""])
    the_spooled(payload)


@pytest.mark.parametrize("over", [0, 1])
def test_the_limit_of_what_is_said_live(server: HookServer, over: int) -> None:
    """The line is longer than what is said, so that one that is just short enough is too long."""
    said = b"x" * ((1 << 24) - 1 + over)
    assert hook(said).silent
    assert server.lines in ([], [b""])
    the_spooled(said.decode())


def test_the_limit_of_a_line(server: HookServer) -> None:
    words = ("claude", "preCompact")  # the daemon has 4 s
    hook(b"", *words)
    longest = (1 << 24) - len(server.lines[-1])
    for more in (-100, 100):
        assert hook(b"x" * (longest + more), *words).silent
        assert len(spooled()) == (more > 0)
    # Every byte of it takes six, and the spool keeps the newest only.
    assert hook(b"\x01" * (1 << 22)).silent
    the_spooled("\x01" * (1 << 22))


def test_more_than_anybody_says_is_cut_and_its_writer_does_not_fail(home: Path) -> None:
    said = b"x" * 40 * 1024 * 1024
    done = hook(said)
    assert done.silent
    (file,) = spooled()
    assert 32 * 1024 * 1024 <= file.stat().st_size < 34 * 1024 * 1024


# The spool


def fill(files: int, size: int) -> None:
    paths.spool_path().mkdir(parents=True)
    for number in range(files):
        with (paths.spool_path() / f"{number:013}-{number:032x}.json").open("wb") as file:
            file.truncate(size)


def test_the_spool_keeps_the_newest_thousand(home: Path) -> None:
    fill(1_002, 10)
    assert hook(PAYLOAD).silent
    names = [file.name for file in spooled()]
    assert len(names) == 1_000
    assert names[0].startswith(f"{3:013}-")
    assert NAME.fullmatch(names[-1])


def test_the_spool_keeps_16_mb_and_the_newest_whatever_its_size(home: Path) -> None:
    fill(20, 1_000_000)
    assert hook(PAYLOAD).silent
    assert sum(file.stat().st_size for file in spooled()) <= 16_000_000
    assert len(spooled()) == 16
    payload = "x" * 18_000_000
    assert hook(payload).silent
    the_spooled(payload)


@pytest.mark.parametrize("kind", ["file", "nowhere", "dangling"])
def test_a_spool_that_cannot_be_written_disturbs_nobody(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home / "state" / "fleet"
    if kind == "file":
        state.write_text("")
    elif kind == "dangling":
        state.mkdir()
        (state / "spool").symlink_to("nowhere")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    done = hook(PAYLOAD)
    assert done.silent
    assert done.seconds < AT_MOST_S


def test_a_spool_elsewhere_is_found_by_its_link(home: Path) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.mkdir(mode=0o750)
    (home / "state" / "fleet").mkdir()
    (home / "state" / "fleet" / "spool").symlink_to("../../elsewhere")
    assert hook(PAYLOAD).silent
    the_spooled()
    assert len(list(elsewhere.iterdir())) == 1
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o750


def test_what_lies_in_the_spool_beside_frames_counts_and_goes_first(home: Path) -> None:
    fill(1_000, 10)
    (paths.spool_path() / "0-older").write_text("")
    (paths.spool_path() / "\udcff").write_text("")
    assert hook(PAYLOAD).silent
    names = sorted(file.name for file in spooled())
    assert len(names) == 1_000
    assert "\udcff" in names
    assert names[0].startswith(f"{2:013}-")


def test_half_a_file_is_not_kept_and_costs_no_whole_one(home: Path) -> None:
    fill(1_000, 10)
    whole = spooled()

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    assert hook(PAYLOAD, preexec_fn=no_room).silent
    assert spooled() == whole


def test_many_first_calls_at_once_lose_nothing(home: Path) -> None:
    processes = [start() for _ in range(16)]
    for number, process in enumerate(processes):
        assert process.communicate(str(number).encode(), timeout=60) == (b"", b"")
    said = {json.loads(file.read_bytes())["params"]["payload"] for file in spooled()}
    assert said == {str(number) for number in range(16)}


def test_without_a_home_the_one_of_the_user_database_is_used(server: HookServer) -> None:
    done = hook(PAYLOAD, env=without("HOME", "XDG_STATE_HOME"))
    assert done.silent
    assert server.params["payload"] == PAYLOAD


# fleetctl hook


@in_python_only
def test_fleetctl_hook_is_the_same_client(server: HookServer) -> None:
    server.reply = ACCEPTED.replace(b'""', b'"answer"')
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", "hook", "copilot", "preCompact"],
        input=PAYLOAD.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"answer", b"")
    assert (server.params["harness"], server.params["args"]) == ("copilot", ["preCompact"])


@pytest.mark.parametrize("words", [(), ("--json",), ("--bogus", "--help"), ("\udcff",)])
def test_no_command_line_is_wrong(server: HookServer, words: tuple[str, ...]) -> None:
    for command in (support.COMMAND, (sys.executable, "-m", "fleetctl", "hook")):
        done = subprocess.run(
            [*command, *words], input=b"{}", capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(server.lines) == 2


@in_python_only
def test_fleetctl_hook_explains_itself(run: Callable[..., Any]) -> None:
    assert "spool" in run("hook", "--help").out
