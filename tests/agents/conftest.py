"""A desk for each agent CLI: the CLI with fleetd's hooks, a project, and a model with a script."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import packages
from tests.agents.desk import Desk, desk_of, own_commands
from tests.agents.machines import Claude, Codex, Copilot, Gemini, OpenCode
from tests.agents.packages import NotHere, Package, installed
from tests.support.processes import Daemon


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line why tests were skipped, rather than once for each."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason in sorted({report.longrepr[2] for report in skipped}):
        terminalreporter.write_line(reason)


def _there(package: Package) -> Package:
    try:
        return installed(package)
    except NotHere as reason:
        pytest.skip(str(reason))


# Installed before a test's own home is entered: npm's settings lie in the person's.
@pytest.fixture(scope="session")
def claude_package() -> Package:
    return _there(packages.CLAUDE)


@pytest.fixture(scope="session")
def codex_package() -> Package:
    return _there(packages.CODEX)


@pytest.fixture(scope="session")
def gemini_package() -> Package:
    return _there(packages.GEMINI)


@pytest.fixture(scope="session")
def copilot_package() -> Package:
    return _there(packages.COPILOT)


@pytest.fixture
def commands(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of a person's own commands, where a shell looks first."""
    return own_commands(home, monkeypatch)


@pytest.fixture
def claude(claude_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Claude]]:
    with desk_of(Claude, daemon, commands) as desk:
        yield desk


@pytest.fixture
def codex(codex_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Codex]]:
    with desk_of(Codex, daemon, commands) as desk:
        yield desk


@pytest.fixture
def gemini(gemini_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Gemini]]:
    with desk_of(Gemini, daemon, commands) as desk:
        yield desk


@pytest.fixture(scope="session")
def opencode_package() -> Package:
    return _there(packages.OPENCODE)


@pytest.fixture
def opencode(opencode_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[OpenCode]]:
    with desk_of(OpenCode, daemon, commands) as desk:
        yield desk


@pytest.fixture
def copilot(copilot_package: Package, daemon: Daemon, commands: Path) -> Iterator[Desk[Copilot]]:
    with desk_of(Copilot, daemon, commands) as desk:
        yield desk
