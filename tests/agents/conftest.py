"""A desk for each agent CLI: the CLI with fleetd's hooks, a project, and a model with a script."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import pytest

from tests.agents import packages
from tests.agents.machines import Claude, Codex, Copilot, Gemini, M, OpenCode
from tests.agents.memory import Memory
from tests.agents.packages import Package, installed
from tests.agents.project import repository
from tests.agents.running import outside
from tests.agents.script import Script
from tests.agents.server import serving
from tests.support.processes import Daemon, fleetctl


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line why tests were skipped, rather than once for each."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason in sorted({report.longrepr[2] for report in skipped}):
        terminalreporter.write_line(reason)


@dataclass
class Desk(Generic[M]):
    """Where one CLI works."""

    cli: M
    script: Script
    memory: Memory
    daemon: Daemon
    project: Path = field(default_factory=Path.cwd)

    def hooked(self, *options: str) -> None:
        """Install the hooks as a person does."""
        done = fleetctl("hooks", "install", self.cli.harness, "--yes", *options)
        assert done.status == 0, done.err


@contextmanager
def _desk(kind: type[M], daemon: Daemon, commands: Path) -> Iterator[Desk[M]]:
    repository(Path.cwd())
    kind.package.link(commands)
    script = Script()
    with outside() as proxy, serving(kind.dialect, script) as url:
        desk = Desk(kind(url, proxy), script, Memory(daemon.socket), daemon)
        desk.hooked()
        yield desk
    assert script.replies == [], "the CLI ended before the script did"
    assert script.beyond == 0, "the CLI asked for more than was in the script"
    assert desk.memory.unknown() == [], "fleetd does not know all that the CLI told"


# Installed before a test's own home is entered: npm's settings lie in the person's.
@pytest.fixture(scope="session")
def claude_package() -> Package:
    return installed(packages.CLAUDE)


@pytest.fixture(scope="session")
def codex_package() -> Package:
    return installed(packages.CODEX)


@pytest.fixture(scope="session")
def gemini_package() -> Package:
    return installed(packages.GEMINI)


@pytest.fixture(scope="session")
def copilot_package() -> Package:
    return installed(packages.COPILOT)


@pytest.fixture
def commands(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of a person's own commands, where a shell looks first."""
    directory = home / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


@pytest.fixture
def claude(claude_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Claude]]:
    with _desk(Claude, daemon, commands) as desk:
        yield desk


@pytest.fixture
def codex(codex_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Codex]]:
    with _desk(Codex, daemon, commands) as desk:
        yield desk


@pytest.fixture
def gemini(gemini_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Gemini]]:
    with _desk(Gemini, daemon, commands) as desk:
        yield desk


@pytest.fixture(scope="session")
def opencode_package() -> Package:
    return installed(packages.OPENCODE)


@pytest.fixture
def opencode(opencode_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[OpenCode]]:
    with _desk(OpenCode, daemon, commands) as desk:
        yield desk


@pytest.fixture
def copilot(copilot_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Copilot]]:
    with _desk(Copilot, daemon, commands) as desk:
        yield desk
