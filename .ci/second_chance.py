"""Runs a pytest command, and up to three tests that failed once more, alone.

On a busy machine a test can run into a limit of time that has nothing to do with it. A defect fails
a second time. The output names each test that needed its second chance, because it deserves a look.

    python .ci/second_chance.py COMMAND...

The exit status is that of the last run.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 3
_TESTS_FAILED = 1


def main(command: list[str]) -> int:
    """Run the command; return its exit status, or that of the second run."""
    with tempfile.TemporaryDirectory(prefix="fleetd-pytest-") as cache:
        command = [*command, "-o", f"cache_dir={cache}"]
        status = subprocess.call(command)
        failed = _failed(Path(cache))
        if status != _TESTS_FAILED or not 0 < len(failed) <= MOST:
            return status
        print("\nOnce more, alone:", *failed, sep="\n  ", flush=True)
        again = ["--last-failed", "--last-failed-no-failures=none", "--numprocesses=1"]
        status = subprocess.call([*command, *again])
        if status == 0:
            print("\nFailed at first, and passed alone:", *failed, sep="\n  ", flush=True)
        return status


def _failed(cache: Path) -> list[str]:
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text("utf-8"))) if file.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
