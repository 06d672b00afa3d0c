"""Both ends of the socket are one user's: the kernel is asked before anything is said or taken."""

import importlib.util
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fleetctl as package
from fleetctl.client import Fleet
from fleetctl.client.transport import dial
from fleetd.protocol import framing
from fleetd.protocol.errors import Denied
from tests.integration.access.conftest import STRANGER
from tests.support import hook_client
from tests.support.hook_client import hook, spooled
from tests.support.processes import Daemon, fleetctl

Stranger = Callable[..., subprocess.Popen[bytes]]
PAYLOAD = '{"session_id":"s","hook_event_name":"PreCompact","cwd":"/secret/place"}'
CREATE = b'{"jsonrpc":"2.0","id":7,"method":"mission.create","params":{"title":"theirs"}}\n'
KNOCK = f"""
sock = socket.socket(socket.AF_UNIX)
try:
    sock.connect(sys.argv[1])
    with contextlib.suppress(BrokenPipeError):
        sock.sendall({CREATE!r})
    while data := sock.recv(65536):
        sys.stdout.buffer.write(data)
except ConnectionResetError:  # it was closed with what we had sent unread
    pass
except OSError as error:
    print(type(error).__name__)
"""
LISTEN = """
sock = socket.socket(socket.AF_UNIX)
sock.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
sock.listen()
print(flush=True)
taken, connection = b"taken: ", sock.accept()[0]
while data := connection.recv(65536):
    taken += data
sys.stdout.buffer.write(taken)
"""
SERVE = """
os.environ["HOME"] = sys.argv[1]
sys.exit(fleetd.__main__.main([]))
"""


def everything(daemon: Daemon) -> Any:
    with Fleet(daemon.socket) as client:
        return client.call_raw("event.list"), client.call_raw("mission.list")


def test_somebody_else_is_told_so_and_nothing_is_taken_from_him(
    daemon: Daemon, stranger: Stranger
) -> None:
    before = everything(daemon)
    daemon.socket.chmod(0o666)
    out, err = stranger("import contextlib, socket, sys", KNOCK, daemon.socket).communicate(
        timeout=60
    )
    assert err == b""
    (line,) = out.splitlines()
    reply = json.loads(line)
    assert (reply["id"], reply["error"]["code"]) == (None, Denied.code)
    assert reply["error"]["data"]["uid"] == STRANGER
    assert everything(daemon) == before
    assert f"uid {STRANGER} may not use it" in daemon.log.read_text()
    with Fleet(daemon.socket) as client:
        figures = client.call_raw("system.metrics")["text"].splitlines()
    assert "fleetd_connections_refused_total 1" in figures


def test_somebody_else_who_does_not_stay_leaves_one_line_in_the_log(
    daemon: Daemon, stranger: Stranger
) -> None:
    daemon.socket.chmod(0o666)
    leave = "for _ in range(50):\n with socket.socket(socket.AF_UNIX) as s: s.connect(sys.argv[1])"
    stranger("import socket, sys", leave, daemon.socket).communicate(timeout=60)
    everything(daemon)
    lines = daemon.log.read_text().splitlines()
    refusals = [line for line in lines if f"uid {STRANGER} may not use it" in line]
    assert len(refusals) == 50
    assert len(lines) == 51


def test_somebody_else_does_not_even_get_to_the_socket(daemon: Daemon, stranger: Stranger) -> None:
    out, _ = stranger("import contextlib, socket, sys", KNOCK, daemon.socket).communicate(
        timeout=60
    )
    assert out == b"PermissionError\n"


@pytest.fixture
def foreign_socket(home: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have somebody else listen, in the place of our daemon; returns what he was told."""
    (home / "run").chmod(0o777)
    listening = stranger("import socket, sys", LISTEN, home / "run" / "d.sock")
    assert listening.stdout is not None
    assert listening.stdout.readline() == b"\n"
    return lambda: listening.communicate(timeout=60)[0]


def test_a_foreign_daemon_is_told_nothing_by_fleetctl(foreign_socket: Any) -> None:
    said = fleetctl("mission", "create", "a secret")
    assert (said.status, said.out) == (1, "")
    assert "belongs to another user" in said.err
    assert foreign_socket() == b"taken: "


@pytest.mark.parametrize("client", ["python", "compiled"])
def test_a_foreign_daemon_is_told_nothing_by_the_hook_client(
    foreign_socket: Any, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    monkeypatch.setattr(hook_client, "COMMAND", hook_client.command_of(client))
    assert hook(PAYLOAD).silent
    assert foreign_socket() == b"taken: "
    (left,) = spooled()
    assert "/secret/place" in left.read_text()


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to load the plugin")
def test_a_foreign_daemon_is_not_even_called_by_the_opencode_plugin(
    foreign_socket: Any, home: Path
) -> None:
    plugin = Path(package.__file__).parent / "plugins" / "opencode.js"
    (home / "package.json").write_text('{"type": "module"}')
    shutil.copy(plugin, home / "plugin.js")
    told = {"event": {"type": "session.created", "properties": {"info": {"id": "ses_1"}}}}
    lines = [{"hook": "event", "input": told}, {"hook": "dispose"}, {"hook": "exit"}]
    host = Path(__file__).parents[2] / "harness" / "opencode_host.mjs"
    subprocess.run(
        ["node", host, home / "plugin.js"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert any("ses_1" in left.read_text() for left in spooled())
    hook(PAYLOAD)  # lets the listener go: nobody had come before
    assert foreign_socket() == b"taken: "


def test_a_real_daemon_of_somebody_else_is_refused_by_name(
    home: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    alien = home / "alien"
    alien.mkdir(mode=0o711)
    shutil.chown(alien, STRANGER, STRANGER)
    monkeypatch.setenv("FLEET_SOCKET", str(alien / "d.sock"))
    before = (
        "import codecs, encodings, sys, platformdirs.unix, fleetd.__main__, fleetd.daemon\n"
        "[codecs.lookup(name) for name in ('ascii', 'latin-1', 'unicode_escape')]"
    )
    process = stranger(
        before,
        SERVE,
        alien,
        XDG_STATE_HOME=str(alien / "state"),
        XDG_CONFIG_HOME=str(alien),
        FLEET_DB_PATH=str(alien / "squawk.db"),
        FLIGHTLINE_DIR=str(alien / "flightline"),
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert b"listens on" in line, line + process.stderr.read()
    for command in (("mission", "create", "a secret"), ("status",), ("hooks", "status")):
        said = fleetctl(*command)
        assert "belongs to another user" in said.err + said.out, command
    assert hook(PAYLOAD).silent
    assert len(spooled()) == 1
    process.terminate()
    _, log = process.communicate(timeout=60)
    assert b"Traceback" not in log
    assert b"a secret" not in b"".join(path.read_bytes() for path in alien.glob("squawk.db*"))


def test_uids_that_need_all_their_bits_are_told_apart() -> None:
    class Sock:
        def getsockopt(self, *_: int) -> bytes:
            return struct.pack("3I", 5, STRANGER, 0)

    assert framing.credentials(Sock()) == (STRANGER, 5)


def on_macos(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module as it is on macOS."""
    monkeypatch.setattr("sys.platform", "darwin")
    spec = importlib.util.spec_from_file_location("on_macos", framing.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.undo()
    return module


def test_on_macos_the_other_end_is_asked_for_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sock:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option, size) == (0, 1, 76)
            return struct.pack("2I", 0, STRANGER) + bytes(68)

    assert on_macos(monkeypatch).credentials(Sock()) == (STRANGER, None)


@pytest.mark.parametrize("nobody_knows", [True, False])
def test_where_the_other_end_is_foreign_or_unknown_fleetctl_closes_at_once(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, nobody_knows: bool
) -> None:
    asked: list[Any] = []

    def answer(sock: Any) -> tuple[int, int | None]:
        asked.append(sock)
        if nobody_knows:
            raise OSError(92, "Protocol not available")
        return STRANGER, None

    monkeypatch.setattr("fleetctl.client.transport.credentials", answer)
    with pytest.raises(Denied):
        dial(daemon.socket, 0)
    assert asked[0].fileno() == -1
