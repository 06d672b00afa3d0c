"""Anything in any order: a fleet is driven at random beside a simple model of its promises.

``FLEET_PROPERTY_EXAMPLES=5000`` runs a longer campaign, each time with another seed.
"""

import os

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.faults import TimeRules
from tests.property.history import PastRules
from tests.support import shared_store

CAMPAIGN = int(os.environ.get("FLEET_PROPERTY_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=CAMPAIGN or (4 if shared_store.SERVER else 12),
    stateful_step_count=40,
    derandomize=not CAMPAIGN,
    # Nothing is left in the repository; a failure prints the steps that lead to it.
    database=None,
    # A step makes several durable commits; how long they take is not what is tested.
    deadline=None,
    print_blob=True,
)


class AnyOrder(PastRules, TimeRules):
    """Everything that may be done to a fleet."""


def test_the_promises_hold_in_any_order() -> None:
    run_state_machine_as_test(AnyOrder, settings=SETTINGS)
