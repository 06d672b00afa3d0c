"""The terminal that tests look at: size, keys, colours, ends."""

import sys
from pathlib import Path

from tests.support.terminal import terminal

ASKING = """
import os, shutil
size = shutil.get_terminal_size()
print(f"{size.columns} by {size.lines}")
print("\\x1b[1;31mred\\x1b[0m and \\x1b[38;2;1;2;3mdark\\x1b[0m")
name = input("Name? ")
raise SystemExit(len(name))
"""


def test_a_program_sees_a_terminal_of_its_size_and_is_seen_with_its_colours(tmp_path: Path) -> None:
    with terminal([sys.executable, "-c", ASKING], env={}, cwd=tmp_path, columns=60, rows=10) as it:
        it.until("Name?")
        assert it.lines()[:3] == ["60 by 10", "red and dark", "Name?"]
        drawn = it.drawing("A question")
        it.press(*"alice", "enter")
        assert it.rest() == 5
    assert "#e06c75" in drawn
    assert "#010203" in drawn
    assert "A&#160;question" in drawn or "A question" in drawn
    assert "font-face" not in drawn


def test_what_still_runs_is_ended(tmp_path: Path) -> None:
    sleeping = "print('here', flush=True); import time; time.sleep(600)"
    with terminal([sys.executable, "-c", sleeping], env={}, cwd=tmp_path) as it:
        it.until("here")
    assert it.process.returncode is not None
