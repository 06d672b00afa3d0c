"""What goes wrong before or beside the daemon: each with its message and its exit status."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl import cli
from fleetd import __version__

NOT_RUNNING = "fleetd is not running. Start it with: systemctl --user start fleetd (or run: fleetd)"
LOOK = "fleetctl doctor checks whether fleetd can start."
WITHOUT_SYSTEMD = "fleetd is not running. Start it with: fleetctl daemon start (or run: fleetd)"
HINT = "fleetctl daemon start does whichever of the two this machine has."
FOREIGN_SERVER = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.setuid(65534)
listener.listen()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def booted(monkeypatch, tmp_path: Path) -> None:
    """Let systemd have started this machine."""
    monkeypatch.setattr("fleetctl.client.transport.BOOTED", str(tmp_path))


def test_start_it_with_systemctl_is_not_printed_where_there_is_no_systemd(
    run, home, monkeypatch, tmp_path
):
    monkeypatch.setattr("fleetctl.client.transport.BOOTED", str(tmp_path / "none"))

    assert run("status").err == f"Error: {WITHOUT_SYSTEMD}\nHint: {LOOK}\n"


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("undo",), "fleetctl resume --checkpoint ID --rewind"),
        (("undo", "--yes"), "fleetctl resume --checkpoint ID --rewind"),
        (("ps",), "fleetctl status shows agents and missions, fleetctl agent list"),
        (("log", "-n", "5"), "fleetctl daemon logs"),
        (("help", "undo"), "fleetctl resume --checkpoint ID --rewind"),
    ],
)
def test_undo_ps_and_log_are_answered_with_the_right_command(run, home, argv, named):
    result = run(*argv)

    assert (result.status, result.out) == (2, "")
    assert named in result.err


def test_help_and_version_simply_work(run, home, capsys):
    assert run("help").out == run("--help").out != ""
    assert run("help", "mission", "create").out == run("mission", "create", "--help").out
    assert run("version").out == run("--version").out == f"fleetctl {__version__}\n"
    assert run("version", "--json").json == {"version": __version__}
    assert run("help", "mission", "--json").json["help"].startswith("usage: fleetctl mission")
    for wrong in (("statsu",), ("mission", "creat"), ("status", "x")):
        assert run("help", *wrong).status == 2


@pytest.mark.parametrize("cut", ["msn-1", "msn-1a2"])
def test_an_id_cut_to_three_digits_is_answered_with_the_rule(daemon, run, cut):
    result = run("mission", "show", cut)

    assert result.status == 4
    assert "to at least four digits. fleetctl mission list shows" in result.err
    assert "four digits" not in run("mission", "show", "msn-1a2b").err


@pytest.mark.parametrize(
    "command", [("status",), ("checkpoint",), ("resume", "--yes"), ("events", "--follow")]
)
def test_without_a_daemon_it_says_how_to_start_one(run, home, command):
    result = run(*command)

    assert (result.status, result.out) == (1, "")
    assert result.err == f"Error: {NOT_RUNNING}\nHint: {HINT}\n"


def test_without_a_daemon_as_json(run, home):
    result = run("status", "--json")

    assert (result.status, result.out) == (1, "")
    error = json.loads(result.err)["error"]
    assert (error["kind"], error["code"], error["message"]) == ("unavailable", -32008, NOT_RUNNING)


def test_a_stale_socket_is_no_daemon(run, home: Path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / "run" / "d.sock"))

    assert run("status").err == f"Error: {NOT_RUNNING}\nHint: {HINT}\n"


def test_streams_that_the_caller_closed_are_nowhere(home: Path):
    """``<&-`` and ``>&-``: no traceback, and the socket does not get the number of a stream."""
    shell = 'exec "$0" -m fleetctl "$@"'
    argv = [sys.executable, "daemon", "uninstall"]
    unit = home / "config" / "systemd" / "user" / "fleetd.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    asked = subprocess.run(
        ["sh", "-c", f"{shell} <&-", *argv], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in asked.stderr
    silent = subprocess.run(
        ["sh", "-c", f"{shell} <&- >&-", sys.executable, "config"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (silent.returncode, silent.stdout) == (0, "")
    assert "Traceback" not in silent.stderr
    deaf = subprocess.run(
        ["sh", "-c", f"{shell} <&- >&- 2>&-", sys.executable, "status"], check=False
    )
    assert deaf.returncode == 1


def test_a_file_in_the_sockets_place_is_named(run, home: Path):
    (home / "run" / "d.sock").write_text("not a socket")

    assert "d.sock is not a socket" in run("status").err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_argument_that_is_not_utf8_is_refused(home, options):
    command = [sys.executable, "-m", "fleetctl", "mission", "create", b"a\xff\xfe", *options]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (2, "")
    assert "is not valid UTF-8" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", [["status"], ["call", "rpc.discover"]])
def test_output_that_cannot_be_written_is_an_error(daemon, command):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "fleetctl", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert result.returncode == 1
    assert result.stderr == "Error: The output cannot be written: No space left on device.\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as somebody else")
def test_a_socket_of_another_user_is_refused(run, home: Path):
    path = home / "run" / "d.sock"
    server = subprocess.Popen(
        [sys.executable, "-c", FOREIGN_SERVER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        text = run("status")
        document = run("status", "--json")
    finally:
        server.communicate(timeout=60)

    assert text.status == 1
    assert text.err.startswith(f"Error: The socket {path} belongs to another user.\nHint: ")
    error = json.loads(document.err)["error"]
    assert (error["kind"], error["uid"]) == ("denied", 65534)


def test_a_socket_path_that_is_too_long_is_refused_with_its_length(run, home, monkeypatch):
    monkeypatch.setenv("FLEET_SOCKET", "/" + "x" * 200)

    result = run("status")

    assert result.status == 2
    assert "201 bytes long" in result.err


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("bogus",), "bogus"),
        ((), "COMMAND"),
        (("mission",), "COMMAND"),
        (("checkpoint", "--nope"), "--nope"),
        (("checkpoint", "--mission"), "--mission"),
        (("checkpoints", "list", "--limit", "0"), "--limit"),
        (("checkpoints", "list", "--limit", "many"), "'many'"),
        (("checkpoints", "prune", "--keep", "0"), "--keep"),
        (("checkpoints", "prune", "--older-than", "-1"), "--older-than"),
        (("checkpoints", "show"), "ID"),
        (("lock", "acquire", "a.py"), "--agent"),
        (("mission", "list", "--status", "odd"), "--status"),
        (("snapshot",), "COMMAND"),
        (("snapshot", "record", "--source", "hunch"), "--source"),
        (("snapshot", "record", "--ordinal", "0"), "--ordinal"),
        (("snapshot", "list", "--limit", "0"), "--limit"),
    ],
)
def test_a_wrong_command_line_names_what_is_wrong_and_shows_the_usage(run, home, command, named):
    result = run(*command)

    assert (result.status, result.out) == (2, "")
    first, second = result.err.splitlines()[:2]
    assert first.startswith("Error: ")
    assert named in first
    assert second.startswith("usage: fleetctl")


def test_a_wrong_option_as_json(run, home):
    result = run("checkpoint", "--json", "--nope")

    assert (result.status, result.out) == (2, "")
    error = json.loads(result.err)["error"]
    assert error["kind"] == "invalid_params"
    assert "--nope" in error["message"]


def test_a_malformed_id_is_refused_by_the_daemon(run, daemon):
    result = run("checkpoints", "show", "../../etc/passwd")

    assert result.status == 2
    assert "checkpoint_id" in result.err


def test_a_directory_that_was_deleted_under_the_shell(run, daemon, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    result = run("checkpoint")
    monkeypatch.chdir(tmp_path)

    assert result.status == 4
    assert "current directory" in result.err


@pytest.mark.parametrize("command", [("--help",), ("resume", "--help"), ("mission", "--help")])
def test_help_is_no_error(run, home, command):
    result = run(*command)

    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("usage: fleetctl")


def test_help_says_nothing_of_what_is_not_there(run, home):
    for command in (("--help",), ("lock", "--help"), ("help", "lock")):
        assert "None" not in run(*command).out


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_group_has_help(run, home, name):
    result = run(name, "--help")

    assert result.status == 0
    assert result.out.startswith(f"usage: fleetctl {name}")


def test_the_alias_calls_itself_by_its_name(run, home, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/fleet"])

    assert run("--version").out.startswith("fleet ")
    assert run("checkpoint", "--help").out.startswith("usage: fleet checkpoint")


def test_ctrl_c_at_a_question_is_status_130(run, done, mission, monkeypatch, answer):
    done("checkpoint")
    answer("y")

    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.stdin, "readline", interrupt)

    assert run("resume").status == cli.INTERRUPTED


def test_a_reader_that_has_seen_enough_is_no_error(done, mission):
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetctl", "events"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == cli.BROKEN_PIPE == 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    "command",
    [
        ("checkpoints", "diff", ""),
        ("checkpoints", "diff", "--mission", ""),
        ("checkpoint", "--mission", ""),
        ("resume", "--checkpoint", "", "--yes"),
        ("mission", "start", ""),
        ("mission", "timeline", ""),
        ("context", "--checkpoint", ""),
        ("snapshot", "verify", ""),
        ("lock", "list", "--agent", ""),
    ],
)
def test_an_id_from_a_variable_that_is_not_set_is_not_the_default(run, home, command):
    """Nobody is asked: there is no daemon here, and that would be the error."""
    refused = run(*command)

    assert refused.status == 2
    assert ": the value is empty; give one, or leave it out\n" in refused.err


def test_a_command_that_prints_nothing_offers_no_form_of_it(run, home):
    assert "--json" in run("status", "--help").out
    told = run("watch", "--help").out
    assert "--json" not in told
    assert "--exact" not in told
    assert "has no JSON document" in run("watch", "--json").err


def test_an_empty_argument_that_nobody_knows_is_seen(run, home):
    assert run("resume", "").err.startswith("Error: unrecognized arguments: ''\n")
