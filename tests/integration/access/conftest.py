"""A daemon that tests of access start with a hostile environment, and somebody else's processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli import conftest as command_line
from tests.mcp.conftest import near as near
from tests.support.processes import Daemon

answer, done, run = command_line.answer, command_line.done, command_line.run
# Exists nowhere else: what it can do, anybody can.
STRANGER = 3_999_999_937


@pytest.fixture
def refused(home: Path) -> Callable[..., str]:
    """Return a function that starts a daemon which must not come up, and returns its log."""

    def start(status: int = 78, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fleetd"],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert "listens on" not in done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    return start


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Daemon]]:
    """Return a function that starts a daemon; none outlives the test."""
    daemons: list[Daemon] = []

    def begin(**options: object) -> Daemon:
        log = home / f"daemon-{len(daemons)}.log"
        daemons.append(Daemon(Path(os.environ["FLEET_SOCKET"]), log, **options))
        daemons[-1].start()
        return daemons[-1]

    yield begin
    for each in daemons:
        each.clean_up()


@pytest.fixture
def stranger(home: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that runs Python code as somebody else, with its words as ``sys.argv[1:]``.

    The code is given as two parts: what is done before, such as imports that only we may make, and
    what is done after it became somebody else.
    """
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    processes: list[subprocess.Popen[bytes]] = []

    def run(before: str, after: str, *words: object, **variables: str) -> subprocess.Popen[bytes]:
        become = f"import os; os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})"
        command = [sys.executable, "-c", f"{before}\n{become}\n{after}", *map(str, words)]
        # Somebody else cannot write down which lines were run.
        own = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE_")}
        env = own | variables
        processes.append(
            subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return processes[-1]

    for directory in (home, home / "run"):
        directory.chmod(0o755)
    yield run
    for process in processes:
        process.kill()
        process.communicate()
