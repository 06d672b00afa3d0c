"""The pages of synced mode and of its server run, command by command, against a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.machine import ShellMachine, machine
from tests.docs.output import Shown
from tests.docs.pages import blocks, name
from tests.docs.test_blocks import RUN, SERVED, carry_out
from tests.support.postgres_server import LocalPostgres

# What the pages call the server.
HOST = "db.example.org"


class Elsewhere(Shown):
    """A page's commands with the server of this test in place of the one that they name."""

    def __init__(self, home: str, server: LocalPostgres) -> None:
        super().__init__(home)
        self._server = server

    def typed(self, text: str) -> str:
        return super().typed(text.replace(HOST, f"127.0.0.1:{self._server.port}"))


@pytest.fixture
def served() -> Iterator[LocalPostgres]:
    with LocalPostgres() as server:
        yield server


@pytest.fixture
def at(served: LocalPostgres) -> Iterator[ShellMachine]:
    with machine() as made:
        yield made


@pytest.mark.parametrize("page", sorted(SERVED), ids=name)
def test_what_a_page_tells_to_run_runs(page: Path, served: LocalPostgres, at: ShellMachine) -> None:
    shown = Elsewhere(str(at.home), served)
    for block in blocks(page):
        if block.language in RUN:
            assert carry_out(block, at, shown) is None
