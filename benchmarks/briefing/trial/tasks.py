"""The tasks: the start of the agent, the prompts of its user, and the tests that decide.

A task is a directory below ``benchmarks/briefing/tasks``:

- ``README.md`` says what the agent must still know after the compaction
- ``task.toml`` has the prompts, the command of the tests, and what the scripted model does
- ``files/`` is the project at the start
- ``check/`` has the tests, which the agent never sees
- ``solution/`` and ``wrong/`` go over the project: one passes the tests, the other one does not
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import msgspec

from . import environment

TASKS = Path(__file__).parents[1] / "tasks"
CHECK_S = 120
_FIRST = ["-c", "user.name=Kim", "-c", "user.email=kim@example.org", "commit", "-qm", "Begin"]


class Scripted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scripted model's action for one prompt before the compaction."""

    run: str
    say: str


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A task; ``known`` are patterns of what an agent must know to solve it."""

    name: str
    title: str
    before: list[str]
    after: list[str]
    check: list[str]
    known: list[str]
    scripted: list[Scripted]
    unversioned: list[str] = []

    @property
    def directory(self) -> Path:
        """Return where the task is."""
        return TASKS / self.name

    def is_known(self, text: str) -> bool:
        """Return whether a text contains all that an agent must know."""
        return all(re.search(pattern, text, re.DOTALL) for pattern in self.known)


def names() -> list[str]:
    """Return the names of all tasks, in order."""
    return sorted(file.parent.name for file in TASKS.glob("*/task.toml"))


def task(name: str) -> Task:
    """Return a task by its name."""
    given = tomllib.loads((TASKS / name / "task.toml").read_text("utf-8"))
    return msgspec.convert({**given, "name": name}, Task)


def lay_out(wanted: Task, project: Path) -> None:
    """Create the project of a task, with one commit."""
    overlay(wanted, "files", project)
    _git(project, "init", "-q", "-b", "main")
    (project / ".git/info/exclude").write_text("\n".join([*wanted.unversioned, "__pycache__", ""]))
    _git(project, "add", "--all")
    _git(project, *_FIRST)
    _git(project, "tag", "begin")
    # For the commits of the agent.
    _git(project, "config", "user.name", "Kim")
    _git(project, "config", "user.email", "kim@example.org")


def overlay(wanted: Task, part: str, project: Path) -> None:
    """Copy a part of a task over a project."""
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(wanted.directory / part, project, dirs_exist_ok=True, ignore=unwanted)


def changes(project: Path) -> str:
    """Return everything that differs from the start, as a diff."""
    try:
        _git(project, "add", "--all", "--intent-to-add")
        return _git(project, "diff", "begin")
    except subprocess.CalledProcessError as error:
        return f"The repository is no longer whole: {error.stderr}\n"


def check(wanted: Task, project: Path) -> tuple[bool, str]:
    """Run the tests of a task on a copy of the project; return whether they pass, and their output.

    They get no key, because they run code that the agent wrote.
    """
    with tempfile.TemporaryDirectory(prefix="fleetd-check-") as name:
        copy = Path(name) / "project"
        command = [word.format(python=sys.executable) for word in wanted.check]
        try:
            shutil.copytree(project, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            overlay(wanted, "check", copy / "check")
            passed, output = _run(command, copy, environment.plain() | {"HOME": name})
        except OSError as error:
            # An agent may create files of any kind.
            passed, output = False, f"The project cannot be tested: {error}\n"
    return passed, output


def _run(command: list[str], directory: Path, env: dict[str, str]) -> tuple[bool, str]:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=CHECK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"The tests did not end within {CHECK_S} s.\n"
    return done.returncode == 0, done.stdout


def _git(project: Path, *words: str) -> str:
    # The machine's settings must not change it.
    own = dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull)
    done = subprocess.run(
        ["git", "-C", str(project), *words],
        env=environment.plain() | own,
        check=True,
        capture_output=True,
        text=True,
        errors="replace",
    )
    return done.stdout
