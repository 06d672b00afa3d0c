"""CI runs a test that failed once more, alone: only a defect fails again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "second_chance.py"
# A test fails as often as its number says.
TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("times", {times})
def test_it(times, request):
    file = pathlib.Path(__file__).with_name(request.node.name)
    runs = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(runs))
    assert runs > times
"""


def run(place: Path, times: list[int]) -> tuple[int, str, list[int]]:
    """Return the exit status, the output, and how often each test ran."""
    (place / "test_some.py").write_text(TESTS.format(times=times))
    (place / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, str(SCRIPT), sys.executable, "-m", "pytest", "-q", "-p", "xdist"]
    done = subprocess.run(
        [*command, str(place)],
        cwd=place,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    names = [f"test_it[{each}]" for each in times]
    return done.returncode, done.stdout, [int((place / name).read_text()) for name in names]


@pytest.mark.parametrize(
    ("times", "status", "runs"),
    [
        ([0, -1], 0, [1, 1]),
        ([1, 9], 1, [2, 2]),
        ([11, 12, 13, 14], 1, [1, 1, 1, 1]),
    ],
    ids=["all pass", "one fails again", "too many"],
)
def test_up_to_three_tests_that_failed_run_once_more(
    tmp_path: Path, times: list[int], status: int, runs: list[int]
) -> None:
    assert run(tmp_path, times)[::2] == (status, runs)


def test_the_output_names_who_needed_it(tmp_path: Path) -> None:
    status, output, runs = run(tmp_path, [0, 1])
    assert (status, runs) == (0, [1, 2])
    assert output.endswith("Failed at first, and passed alone:\n  test_some.py::test_it[1]\n")


def test_another_error_is_no_failed_test(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), sys.executable, "-m", "pytest", "--no-such-option"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 4
