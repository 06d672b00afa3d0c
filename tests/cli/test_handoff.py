"""``fleetctl handoff``: a session of another CLI begins as a child and gets the work."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import Result

# A CLI that keeps what it was started with, and tells fleetd of its session unless it is mute.
CODEX = f"""#!{sys.executable}
import json, os, subprocess, sys
names = ("FLEET_AGENT_ID", "FLEET_MISSION_ID")
told = {{"argv": sys.argv[1:], "cwd": os.getcwd(), "parent": os.getppid()}}
told |= {{name: os.environ.get(name) for name in names}}
if not os.environ.get("MUTE"):
    payload = {{"hook_event_name": "SessionStart",
               "session_id": "019b2f4e-1111-7000-8000-000000000001",
               "cwd": os.getcwd(), "source": "startup", "model": "gpt-5.5",
               "transcript_path": None, "permission_mode": "default"}}
    hook = [sys.executable, "-m", "fleetctl", "hook", "codex"]
    subprocess.run(hook, input=json.dumps(payload), text=True, check=True, capture_output=True)
locks = [sys.executable, "-m", "fleetctl", "lock", "list", "--json"]
(lock,) = json.loads(subprocess.run(locks, check=True, capture_output=True).stdout)
with open(os.environ["TOLD"] + ".new", "w") as file:
    json.dump(told | {{"holder": lock["held_by"]}}, file)
os.rename(os.environ["TOLD"] + ".new", os.environ["TOLD"])
if os.environ.get("STAY"):
    sys.stdin.read()
sys.exit(int(os.environ.get("STATUS", "0")))
"""
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
Run = Callable[..., Result]


class Work:
    """What alice has, and the CLI that is to have it."""

    def __init__(self, mission: str, directory: Path, told: Path) -> None:
        self.mission, self.directory, self._told = mission, directory, told

    def told(self) -> dict[str, object]:
        """Return what the CLI that was started kept."""
        found: dict[str, object] = json.loads(self._told.read_text())
        return found

    @property
    def started(self) -> bool:
        return self._told.exists()


@pytest.fixture
def work(mission: str, done: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    directory = tmp_path / "a project's $(touch owned)"
    directory.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "codex").write_text(CODEX)
    (programs / "codex").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    told = tmp_path / "told.json"
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.chdir(directory)
    done("agent", "start", "alice", "--mission", mission)
    done("lock", "acquire", "form.py", "--agent", "alice")
    sorties = json.loads(done("sortie", "list", "--mission", mission, "--json").out)
    done("sortie", "assign", sorties[0]["id"], "alice")
    return Work(mission, directory, told)


def holder(done: Run) -> str:
    (lock,) = json.loads(done("lock", "list", "--json").out)
    return str(lock["held_by"])


def test_the_new_session_starts_with_the_briefing_and_gets_the_work(
    work: Work, run: Run, done: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS", "7")

    ended = run("handoff", "alice", "--to", "codex", "--yes")

    assert ended.status == 7, ended
    told = work.told()
    heir = str(told["FLEET_AGENT_ID"])
    assert heir.startswith("codex-")
    assert told["FLEET_MISSION_ID"] == work.mission
    assert (told["cwd"], told["parent"]) == (str(work.directory), os.getpid())
    dashes, prompt = told["argv"]  # type: ignore[misc]
    assert dashes == "--"
    assert prompt.startswith("Hand-off hnd-")
    assert f"continue the work of alice. You are {heir} from now on" in prompt
    assert "You took over from alice" in prompt
    # The person has seen just that, but for the id.
    known = prompt.partition(":")[2].partition("### Time Context")[0]
    assert known in ended.out
    assert f"{heir} has the work of alice since" in ended.out
    assert told["holder"] == heir
    # What it says undoes it.
    undo = ended.out.rpartition("To undo this: fleetctl ")[2].split()
    done(*undo, "--yes")
    assert holder(done) == "alice"
    assert not [*work.directory.rglob("owned")]


def test_a_cli_that_tells_nothing_gets_nothing(
    work: Work, run: Run, done: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUTE", "1")

    ended = run("handoff", "alice", "--to", "codex", "--yes")

    assert ended.status == 1
    assert "The work of alice was not handed over (Codex CLI ended before its session" in ended.err
    assert "hooks are not installed in Codex CLI" in ended.err
    assert (work.told()["holder"], holder(done)) == ("alice", "alice")
    # Nobody is awaited any more.
    monkeypatch.delenv("MUTE")
    assert run("handoff", "alice", "--to", "codex", "--yes").status == 0


def test_json_is_only_for_what_leaves_the_terminal_alone(work: Work, run: Run) -> None:
    refused = run("handoff", "alice", "--to", "codex", "--yes", "--json")

    assert refused.status == 2
    assert "--json needs --print or --tmux" in refused.err


def test_nothing_changes_where_the_new_session_cannot_start(
    work: Work, run: Run, done: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = done("events", "--json").out, done("checkpoint", "list", "--json").out

    nobody = run("handoff", "nobody", "--to", "codex", "--yes")
    assert (nobody.status, "Agent not found: nobody" in nobody.err) == (4, True)
    missing = run("handoff", "alice", "--to", "cursor", "--yes")
    assert missing.status == 1
    assert "Cursor is not installed here: there is no executable 'cursor-agent'" in missing.err
    assert run("handoff", "alice", "--to", "emacs").status == 2
    assert run("handoff", "alice").status == 2
    unasked = run("handoff", "alice", "--to", "codex")
    assert (unasked.status, "without a terminal" in unasked.err) == (2, True)
    work.directory.rename(work.directory.with_name("moved"))
    gone = run("handoff", "alice", "--to", "codex", "--yes")
    assert gone.status == 1
    assert f"The directory {work.directory} is not there any more." in gone.err

    assert not work.started
    assert before == (done("events", "--json").out, done("checkpoint", "list", "--json").out)


def test_a_program_that_the_system_refuses_leaves_everything_as_it_was(
    work: Work, run: Run, done: Run, tmp_path: Path
) -> None:
    (tmp_path / "programs" / "codex").write_text("#!/nowhere/python\n")
    ended = run("handoff", "alice", "--to", "codex", "--yes")
    assert (ended.status, "Codex CLI cannot be started: No such file" in ended.err) == (1, True)
    assert holder(done) == "alice"
    (tmp_path / "programs" / "codex").write_text(CODEX)
    assert run("handoff", "alice", "--to", "codex", "--yes").status == 0


def test_who_says_no_hands_nothing_over(
    work: Work, run: Run, done: Run, answer: Callable[[str], None]
) -> None:
    answer("n")
    ended = run("handoff", "alice", "--to", "codex")
    assert ended.status == 3
    assert "You took over from alice" in ended.out
    assert (work.started, holder(done)) == (False, "alice")


def test_the_printed_command_does_it_in_another_terminal(work: Work, run: Run, done: Run) -> None:
    printed = run("handoff", "alice", "--to", "codex", "--force", "--print")
    assert printed.out == "fleetctl handoff alice --to codex --exec --force\n"
    assert f"starts Codex CLI in {work.directory}" in printed.err
    assert (work.started, holder(done)) == (False, "alice")
    told = json.loads(done("handoff", "alice", "--to", "codex", "--print", "--json").out)
    assert told["command"] == "fleetctl handoff alice --to codex --exec"
    done(*printed.out.split()[1:], "--yes")
    assert work.told()["holder"] == work.told()["FLEET_AGENT_ID"]


@pytest.fixture
def tmux(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the tmux of a test to itself, and end its server."""
    with tempfile.TemporaryDirectory(prefix="tmux") as directory:
        monkeypatch.setenv("TMUX_TMPDIR", directory)
        monkeypatch.setenv("SHELL", "/bin/sh")
        monkeypatch.setenv("TERM", "xterm")
        for name in ("TMUX", "TMUX_PANE"):
            monkeypatch.delenv(name, raising=False)
        yield
        subprocess.run(["tmux", "kill-server"], check=False, capture_output=True)


@needs_tmux
def test_a_window_of_tmux_is_the_terminal_of_the_new_session(
    work: Work, done: Run, tmux: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAY", "1")
    opened = done("handoff", "alice", "--to", "codex", "--tmux", "--yes")
    assert "Codex CLI starts in the window fleet:0 of tmux." in opened.out
    assert "tmux attach -t fleet" in opened.out
    give_up = time.monotonic() + 30
    while not work.started:
        assert time.monotonic() < give_up, "no session began in the window"
        time.sleep(0.1)
    told = work.told()
    assert (told["cwd"], told["holder"]) == (str(work.directory), told["FLEET_AGENT_ID"])


# The parent of a session.

PARENT = (
    "import sys; from fleetctl.launch import child; from fleetctl.launch.commands import Launch\n"
    "sys.exit(child.run(Launch('A CLI', (sys.executable, '-c', sys.argv[1]))))"
)
SAYS = "import os, signal, sys, time\nprint(os.getpid(), flush=True)\n"


class Parent:
    """A process whose child is a session, as a shell's job: a group of its own."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, SAYS + code],
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline())

    def stopped(self) -> bool:
        """Wait until the process stops, or ends; return whether it stopped."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        return os.WIFSTOPPED(status)

    def end(self) -> int:
        assert self.process.stdout is not None
        with self.process.stdout:
            return self.process.wait(timeout=60)


def test_the_exit_status_of_the_session_is_the_commands_own() -> None:
    assert Parent("sys.exit(5)").end() == 5
    assert Parent("os.kill(os.getpid(), signal.SIGKILL)").end() == 137


def test_a_session_that_stops_is_a_stopped_job_that_goes_on() -> None:
    parent = Parent("os.kill(os.getpid(), signal.SIGSTOP)\nsys.exit(6)")
    assert parent.stopped()
    os.kill(parent.process.pid, signal.SIGCONT)
    assert parent.end() == 6


def test_ctrl_z_and_ctrl_c_reach_the_session_and_not_its_parent() -> None:
    waits = (
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(8))\nprint(flush=True)\nsignal.pause()"
    )
    parent = Parent(waits)
    assert parent.process.stdout is not None
    parent.process.stdout.readline()
    os.killpg(parent.process.pid, signal.SIGTSTP)
    assert parent.stopped()
    os.killpg(parent.process.pid, signal.SIGCONT)
    os.killpg(parent.process.pid, signal.SIGINT)
    assert parent.end() == 8


def test_who_ends_the_parent_ends_the_session() -> None:
    parent = Parent("signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nsignal.pause()")
    os.kill(parent.process.pid, signal.SIGTERM)
    assert parent.end() in (9, 143)  # it may come before the session listens
    with pytest.raises(ProcessLookupError):
        os.kill(parent.child, 0)
