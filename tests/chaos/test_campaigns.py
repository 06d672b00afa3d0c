"""Every campaign in its short form, and with a defect planted, which must turn it red.

The further defects of each are planted by ``make campaign ARGS="all --planted all"``.
"""

import json
import subprocess
import sys

import pytest

from tests.chaos import (
    awaits,
    clients,
    clocks,
    damage,
    endurance,
    frames,
    full_disk,
    injected_bugs,
    injected_shared_bugs,
    io_errors,
    power,
    power_files,
    starts,
    table,
)
from tests.chaos.campaign import Campaign, CannotRun, NotPlanted, Outcome, carry_out

# The short form tests the same places every time; make campaign takes a new seed each time.
SEED = 1
ALL = table.available()
CAMPAIGNS = {campaign.name: campaign for campaign in ALL if not campaign.shared}
PLANTED = [(name, next(iter(each.planted))) for name, each in CAMPAIGNS.items()]


def run(campaign: Campaign, count: int, planted: str | None = None) -> Outcome:
    try:
        return carry_out(campaign, seed=SEED, count=count, planted=planted)
    except CannotRun as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_promise_holds(name: str) -> None:
    campaign = CAMPAIGNS[name]
    outcome = run(campaign, campaign.short)
    assert outcome.red is None, outcome.red
    assert outcome.rounds == campaign.short


@pytest.mark.parametrize(("name", "defect"), PLANTED)
def test_a_planted_defect_is_seen(name: str, defect: str) -> None:
    campaign = CAMPAIGNS[name]
    assert run(campaign, campaign.planted[defect], defect).red


# Campaigns that plant defects in a separate daemon, and those that plant in this process.
PROGRAMS = {
    **{
        f"injected_bugs {name}": f"injected_bugs.DEFECTS[{name!r}]()"
        for name in injected_bugs.DEFECTS
    },
    **{
        f"injected_shared_bugs {name}": f"injected_shared_bugs.DEFECTS[{name!r}]()"
        for name in injected_shared_bugs.DEFECTS
    },
    **{f"locks {name}": f"injected_lock_bugs.{name}()" for name in CAMPAIGNS["locks"].planted},
    **{
        f"{module.__name__} {name}": code
        for module in (clients, endurance, frames, full_disk, starts)
        for name, code in module.DEFECTS.items()
    },
}
PLANTER = """
import json, os, sys
import apsw
import fleetd.__main__
import fleetd.store.postgres.store
from fleetd.store.sqlite import disk_reserve, group_commit
from tests.chaos import injected_bugs, injected_lock_bugs, injected_shared_bugs
from tests.chaos.plant import plant
failed = {}
for name, code in json.load(sys.stdin).items():
    if (pid := os.fork()) == 0:
        status = 1
        try:
            exec(code)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        failed[name] = code
print(json.dumps(failed))
"""
HERE = [
    (module, defect)
    for module in (clocks, damage, io_errors, power, power_files)
    for defect in module.CAMPAIGN.planted
]


def test_every_defect_finds_what_it_changes() -> None:
    command = [sys.executable, "-c", PLANTER]
    done = subprocess.run(
        command, input=json.dumps(PROGRAMS), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {}
    for module, defect in HERE:
        with module._planted(defect):
            pass
    for planted, _, _ in awaits.PLANTED.values():
        with planted():
            pass


def test_a_defect_that_finds_nothing_to_change_is_not_taken_for_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "from fleetd.server import server; plant(server, '_no_such_name', None)"
    monkeypatch.setitem(frames.DEFECTS, "no_limit", code)
    with pytest.raises(NotPlanted, match="no_limit cannot be planted"):
        run(CAMPAIGNS["frames"], 1, "no_limit")


def test_every_promise_is_shown_by_something() -> None:
    assert {campaign.name for campaign in ALL} == set(table.NAMES)
    assert all(row.campaigns or row.tests for row in table.ROWS)
    assert all(campaign.planted for campaign in ALL)
    paths = [path for row in table.ROWS for path in row.tests.split()]
    assert all((table.ROOT / path).exists() for path in paths)


def test_the_page_has_the_results_that_were_recorded() -> None:
    assert table.rendered(table.results()) in table.PAGE.read_text()
