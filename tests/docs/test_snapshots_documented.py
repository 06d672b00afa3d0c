"""docs/snapshots.md shows a snapshot as it is, and tells of every field, source and reason code."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from fleetd.protocol.errors import KINDS
from fleetd.protocol.snapshots import SnapshotDocument
from fleetd.protocol.types import (
    OutcomeKind,
    RunStatus,
    SnapshotSource,
    StepStatus,
    WindowPressure,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "snapshots.md").read_text("utf-8")
EXAMPLE, CHECK = (
    re.search(f"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("json", "python")
)
CODES = [kind.kind for kind in KINDS.values() if kind.kind.startswith("checkpoint_")]


def test_the_example_has_the_fields_of_a_snapshot_in_their_order() -> None:
    document = json.loads(EXAMPLE)

    assert list(document) == list(SnapshotDocument.__struct_fields__)
    assert msgspec.to_builtins(msgspec.convert(document, SnapshotDocument)) == document


@pytest.mark.parametrize(("changed", "verdict"), [(False, "True\n"), (True, "False\n")])
def test_the_check_on_the_page_tells_a_whole_snapshot_from_a_changed_one(
    tmp_path: Path, changed: bool, verdict: str
) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(EXAMPLE.replace("in_progress", "completed") if changed else EXAMPLE)

    told = subprocess.run(
        [sys.executable, "-c", CHECK, str(file)], capture_output=True, text=True, check=True
    )

    assert (told.stdout, told.stderr) == (verdict, "")


@pytest.mark.parametrize(
    "word",
    [
        *SnapshotDocument.__struct_fields__,
        *CODES,
        *(
            word
            for literal in (SnapshotSource, RunStatus, StepStatus, WindowPressure, OutcomeKind)
            for word in get_args(literal)
        ),
    ],
)
def test_every_word_is_explained(word: str) -> None:
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("page", ["README.md", "docs/operations.md", "docs/protocol.md"])
def test_the_page_is_linked(page: str) -> None:
    assert "snapshots.md" in (Path(__file__).resolve().parents[2] / page).read_text("utf-8")
