"""The campaign of machines that share a store in its short form, and with a defect planted."""

from tests.chaos.campaign import carry_out
from tests.chaos.fleet import CAMPAIGN

SEED = 1


def test_machines_that_share_a_store_lose_nothing_and_do_nothing_twice() -> None:
    outcome = carry_out(CAMPAIGN, seed=SEED, count=CAMPAIGN.short)
    assert outcome.red is None, outcome.red
    assert outcome.rounds == CAMPAIGN.short


def test_machines_that_do_not_hear_of_each_other_are_noticed() -> None:
    count = CAMPAIGN.planted["no-notify"]
    assert carry_out(CAMPAIGN, seed=SEED, count=count, planted="no-notify").red
