"""Run a program of ``benchmarks/`` and read what it prints."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(program: str, *options: str) -> str:
    """Return what ``python -m benchmarks.PROGRAM`` prints; it must write nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{program}", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    return done.stdout
