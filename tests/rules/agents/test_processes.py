"""Whether a process still is the one that registered: a pid alone proves nothing."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from fleetd.host import processes
from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.requests.agent import AgentRegister
from tests.support.fleet import Fleet

Mortal = Callable[[], subprocess.Popen[bytes]]


def test_a_process_has_one_start_for_life(mortal: Mortal) -> None:
    child = mortal()
    started = processes.started(child.pid)
    assert started is not None
    assert processes.started(child.pid) == started
    assert processes.same(child.pid, started)
    assert processes.same(child.pid, None)


def test_a_process_that_was_killed_is_gone_before_anybody_waited_for_it(mortal: Mortal) -> None:
    child = mortal()
    started = processes.started(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.started(child.pid) is None
    assert not processes.same(child.pid, started)
    child.wait()
    assert processes.started(child.pid) is None
    assert not processes.same(child.pid, None)


def test_a_process_that_is_stopped_is_still_there(mortal: Mortal) -> None:
    child = mortal()
    started = processes.started(child.pid)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert processes.same(child.pid, started)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs the kernel's start times")
def test_another_process_with_the_same_pid_is_not_the_same() -> None:
    ours = processes.started(os.getpid())
    assert ours is not None
    assert ours.isdigit()
    assert not processes.same(os.getpid(), str(int(ours) - 1))


def test_a_name_full_of_parentheses_does_not_confuse(tmp_path: "os.PathLike[str]") -> None:
    program = os.path.join(tmp_path, "a) Z 0 (b")
    os.symlink("/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as child:
        try:
            assert processes.started(child.pid) is not None
        finally:
            child.kill()


async def test_an_agent_registers_with_a_process_that_lives(fleet: Fleet, mortal: Mortal) -> None:
    child = mortal()
    await fleet.do(AgentRegister("one", "specialist", pid=child.pid))
    (row,) = fleet.sql("SELECT pid, pid_started FROM agents")
    assert row == {"pid": child.pid, "pid_started": processes.started(child.pid)}
    child.kill()
    child.wait()
    with pytest.raises(InvalidParams, match=f"pid is {child.pid}, but no such process exists"):
        await fleet.do(AgentRegister("two", "specialist", pid=child.pid))
    assert [row["id"] for row in fleet.sql("SELECT id FROM agents")] == ["one"]


def test_the_agent_behind_a_hook_is_the_nearest_ancestor_that_is_no_shell(tmp_path: Path) -> None:
    # As a CLI runs a hook: a shell that stays, for something follows, and the client in it.
    told = tmp_path / "pid"
    client = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); input()"
    command = shlex.join([sys.executable, "-I", "-S", "-c", client]) + " || true"
    with subprocess.Popen(["sh", "-c", f"sh -c {shlex.quote(command)}; true"], stdin=PIPE) as shell:
        while not told.exists() or not told.read_text():
            assert shell.poll() is None
            time.sleep(0.01)
        assert processes.agent_behind(int(told.read_text())) == (
            os.getpid(),
            processes.started(os.getpid()),
        )
        shell.communicate(b"\n")
    assert processes.agent_behind(int(told.read_text())) is None


def test_nobody_is_behind_init() -> None:
    assert processes.agent_behind(1) is None
