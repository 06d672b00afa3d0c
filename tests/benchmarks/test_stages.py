"""The stages of a request: none is missing, and together they are the request."""

import json
from typing import Any

import pytest

from tests.support.benchmarks import run

RUNS = 5


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """Return what was measured, by the name of the request."""
    names = ("event.append", "lock", "hook", "checkpoint.create, 4", "mission.get")
    told = run("stages", "--json", "--runs", str(RUNS), *names)
    return {each["name"]: each for each in json.loads(told)}


def test_a_write_passes_every_stage_but_reading(found: dict[str, dict[str, Any]]) -> None:
    for name in ("event.append", "lock.acquire", "lock.release", "checkpoint.create, 4 sorties"):
        stages = found[name]["stages_us"]
        assert stages.pop("read") == 0, name
        assert all(taken > 0 for taken in stages.values()), (name, stages)


def test_a_read_neither_waits_for_the_writer_nor_commits(found: dict[str, dict[str, Any]]) -> None:
    stages = found["mission.get"]["stages_us"]
    assert stages["read"] > 0
    assert stages["queue"] == stages["rule"] == stages["COMMIT"] == 0


def test_no_stage_takes_longer_than_the_request(found: dict[str, dict[str, Any]]) -> None:
    for each in found.values():
        assert max(each["stages_us"].values()) < each["whole_us"]
        assert each["fsync_us"] > 0
