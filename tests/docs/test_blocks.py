"""Every command in the docs runs, and prints what the page says that it prints."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from fleetd import config

from .machine import CommandFailed, ShellMachine, machine, missing
from .output import Shown
from .pages import PAGES, ROOT, Block, blocks, name

RUN = {"sh", "console", "python", "js"}
READ = {"text", "ini", "json", "toml", "promql", "diff"}
# Each says in its page why; whoever wants one more should first try to make it run.
MOST_NOT_RUN = 8
# They need a server: tests/postgres runs them.
SERVED = {ROOT / "docs" / "synced.md", ROOT / "docs" / "postgresql.md"}
SAVED = re.compile(r"^(?:#|//) ([\w.-]+\.\w+)$")
PROMPT = re.compile(r"^\$ ", re.MULTILINE)
ALL = [block for page in PAGES for block in blocks(page)]


@pytest.mark.parametrize("page", sorted({*PAGES} - SERVED), ids=name)
def test_what_a_page_tells_to_run_runs(page: Path) -> None:
    todo = [block for block in blocks(page) if block.language in RUN]
    if not todo:
        return
    with machine() as at:
        shown = Shown(str(at.home))
        absent = {program for block in todo if (program := carry_out(block, at, shown))}
    if absent:
        pytest.skip(f"the rest of the page ran, but not what needs {', '.join(sorted(absent))}")


def carry_out(block: Block, at: ShellMachine, shown: Shown) -> str | None:
    """Run a block; return the program that it needs and that is not here."""
    try:
        if block.first:
            at.run(shown.typed(block.first))
        if block.not_run:
            return None
        if program := missing("node " if block.language == "js" else block.text):
            return program
        _run(block, at, shown)
    except CommandFailed as failure:
        pytest.fail(f"{block.place}: {failure}", pytrace=False)
    return None


def _run(block: Block, at: ShellMachine, shown: Shown) -> None:
    first = block.text.partition("\n")[0]
    if saved := SAVED.match(first):
        at.save(saved[1], block.text)
    elif block.language == "sh":
        at.run(shown.typed(block.text))
    elif block.language == "console":
        _converse(block, at, shown)
    else:
        file, interpreter = {"python": ("a.py", "python3"), "js": ("a.mjs", "node")}[block.language]
        at.save(file, block.text)
        at.run(f"{interpreter} {file}; rm {file}")


def _converse(block: Block, at: ShellMachine, shown: Shown) -> None:
    before, *turns = PROMPT.split(block.text)
    assert not before.strip(), f"{block.place}: a console begins with a command behind '$ '"
    for turn in turns:
        lines = turn.splitlines(keepends=True)
        last = next(n for n, line in enumerate(lines) if not line.endswith("\\\n"))
        command, expected = "".join(lines[: last + 1]), "".join(lines[last + 1 :])
        wrong = shown.compare(expected, at.output(shown.typed(command)))
        if wrong:
            pytest.fail(f"{block.place}: $ {command}{wrong}", pytrace=False)


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.place)
def test_a_block_says_what_it_is_and_is_that(block: Block, tmp_path: Path) -> None:
    assert block.language in RUN | READ
    if block.language == "json":
        json.loads(block.text)
    if block.language == "toml":
        assert tomllib.loads(block.text)
        file = tmp_path / "config.toml"
        file.write_text(block.text)
        config.load({"FLEET_CONFIG": str(file), "HOME": str(tmp_path)})


def test_little_is_not_run_and_each_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = [block for block in ALL if block.not_run]
    with capsys.disabled():
        for block in left_out:
            print(f"\n{block.place} is not run: {block.not_run}", end="")
    assert len(left_out) <= MOST_NOT_RUN
    assert all(len(block.not_run) > 15 for block in left_out)
