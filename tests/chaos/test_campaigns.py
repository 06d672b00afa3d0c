"""Every campaign in its short form, and with a defect planted, which must turn it red.

The further defects of each are planted by ``make campaign ARGS="all --planted all"``.
"""

import pytest

from tests.chaos import table
from tests.chaos.campaign import Campaign, CannotRun, Outcome, carry_out

# The short form looks at the same places every time; make campaign takes a new seed each time.
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


def test_every_promise_is_shown_by_something() -> None:
    assert {campaign.name for campaign in ALL} == set(table.NAMES)
    assert all(row.campaigns or row.tests for row in table.ROWS)
    assert all(campaign.planted for campaign in ALL)
    paths = [path for row in table.ROWS for path in row.tests.split()]
    assert all((table.ROOT / path).exists() for path in paths)


def test_the_page_has_the_results_that_were_recorded() -> None:
    assert table.rendered(table.results()) in table.PAGE.read_text()
