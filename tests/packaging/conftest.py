"""What is built once: a wheel and an sdist from a clean clone, and the tools that install them."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.processes import environment

ROOT = Path(__file__).resolve().parents[2]


class Built(NamedTuple):
    """A clean clone, and what was built from it."""

    clone: Path
    wheel: Path
    sdist: Path


def carried_out(command: Sequence[object], **options: object) -> str:
    """Run a program that must succeed; return what it printed."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def build(clone: Path, *kinds: str) -> list[Path]:
    """Build what is asked for, as whoever releases it does; return the files."""
    into = clone.parent / f"dist-of-{clone.name}"
    carried_out([sys.executable, "-m", "build", *kinds, "--outdir", into, clone])
    return sorted(into.iterdir())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    clone = tmp_path_factory.mktemp("packaging") / "clone"
    carried_out(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone])
    wheel, sdist = build(clone)
    return Built(clone, wheel, sdist)


@pytest.fixture(scope="session")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of pipx and uv, in an environment of their own."""
    place = tmp_path_factory.mktemp("installers") / "venv"
    return virtual_environment(place, "pipx", "uv")


def virtual_environment(place: Path, *packages: object) -> Path:
    """Make an environment with packages in it; return where its programs are."""
    # As the Makefile does: some distributions ship venv without its pip.
    carried_out([sys.executable, "-m", "venv", "--without-pip", place])
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    carried_out([*pip, *packages])
    return place / "bin"


@pytest.fixture
def elsewhere() -> Iterator[dict[str, str]]:
    """Return the environment of somebody who has nothing of ours yet."""
    home = Path(tempfile.mkdtemp(prefix="fleet-")).resolve()
    env = environment(home)
    del env["PYTHONPATH"]
    env |= {"UV_NO_MODIFY_PATH": "1", "PIPX_HOME": str(home / "pipx"), "LC_ALL": "C.UTF-8"}
    env["UV_TOOL_BIN_DIR"] = f"{home}/home/.local/bin"
    env["PATH"] = f"{env['UV_TOOL_BIN_DIR']}:{os.environ['PATH']}"
    yield env
    shutil.rmtree(home)
