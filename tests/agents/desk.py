"""Where one agent CLI works: fleetd's hooks, a project, and a model with a script."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import pytest

from tests.agents.machines import M
from tests.agents.memory import Memory
from tests.agents.project import repository
from tests.agents.running import outside
from tests.agents.script import Script
from tests.agents.server import serving
from tests.support.processes import Daemon, fleetctl


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
def desk_of(
    kind: type[M], daemon: Daemon, commands: Path, *, hooked: bool = True
) -> Iterator[Desk[M]]:
    """Set up a desk in the current directory; at the end the script must have been played."""
    repository(Path.cwd())
    kind.package.link(commands)
    script = Script()
    with outside() as proxy, serving(kind.dialect, script) as url:
        desk = Desk(kind(url, proxy), script, Memory(daemon.socket), daemon)
        if hooked:
            desk.hooked()
        yield desk
    assert script.replies == [], "the CLI ended before the script did"
    assert script.beyond == 0, "the CLI asked for more than was in the script"
    assert desk.memory.unknown() == [], "fleetd does not know all that the CLI told"


def own_commands(home: Path, patch: pytest.MonkeyPatch) -> Path:
    """Make a directory of a person's own commands, where a shell looks first."""
    directory = home / "bin"
    directory.mkdir()
    patch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory
