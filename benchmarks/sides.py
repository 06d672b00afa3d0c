"""The two revisions of a comparison: the current checkout, and an older one with its Python."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .machine import ROOT
from .peers.environments import PLACE
from .rows import Run

BENCHMARKS = Path(__file__).parent
BLOCK_S = 600


class NotMeasured(Exception):
    """A group of a revision cannot be measured; the text has its last output."""


class Side(msgspec.Struct, frozen=True):
    """A revision: its name, the place of its files, and the interpreter that runs them."""

    name: str
    root: Path
    python: str

    def measure(self, options: Sequence[str], scratch: Path) -> Run:
        """Run the benchmarks beside it in a separate process; raises NotMeasured."""
        done = subprocess.run(
            [self.python, "-m", "benchmarks", "--json", "--no-peers", *options],
            # The working directory affects a command, so neither side runs in its own.
            cwd=scratch,
            env=os.environ | {"PYTHONPATH": str(self.root)},
            capture_output=True,
            timeout=BLOCK_S,
        )
        if not done.stdout:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise NotMeasured(lines[-1] if lines else f"exit status {done.returncode}")
        return msgspec.json.decode(done.stdout, type=Run)


@contextmanager
def both(base: str, scratch: Path, own: bool = False) -> Iterator[tuple[Side, Side]]:
    """Yield the older and the newer side; files of the older are below ``scratch``.

    Today's benchmarks measure both, or, with ``own``, each revision's own: today's cannot import
    modules that were renamed since.
    """
    root = scratch / "base"
    _check_out(base, root)
    if not own:
        _lay_benchmarks(root)
    yield Side(base, root, _python_for(root)), Side("now", ROOT, sys.executable)


def _check_out(revision: str, root: Path) -> None:
    """Write a revision's files below ``root``."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", revision],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(root, filter="data")


def _lay_benchmarks(root: Path) -> None:
    """Replace the revision's benchmarks with today's."""
    shutil.rmtree(root / "benchmarks", ignore_errors=True)
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(BENCHMARKS, root / "benchmarks", ignore=unwanted)


def _python_for(root: Path) -> str:
    """Return our interpreter, or one with the older revision's dependencies, created once."""
    wanted = _dependencies(root)
    if wanted == _dependencies(ROOT):
        return sys.executable
    digest = hashlib.sha256(json.dumps([wanted, sys.version]).encode()).hexdigest()[:10]
    place = PLACE / f"base-{digest}"
    python = place / "bin" / "python"
    made = place / ".made"
    if not made.is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        quietly = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([str(python), "-m", "pip", "install", *quietly, *wanted], check=True)
        made.touch()
    return str(python)


def _dependencies(root: Path) -> list[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return sorted(project["dependencies"])
