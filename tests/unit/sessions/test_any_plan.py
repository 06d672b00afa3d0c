"""Any lists after each other: what is open in the plan is open in the mission, and nothing else.

``FLEET_PROPERTY_EXAMPLES=5000`` runs a longer campaign, each time with another seed.
"""

import os
from itertools import zip_longest
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fleetd.domain.missions import sorties
from fleetd.domain.sessions.plan_matching import normalized
from fleetd.harness.report import PlanItem, Planned
from fleetd.protocol.requests.sortie import SortieComplete, SortieStart
from tests.support import shared_store
from tests.unit.sessions.session_rules import AGENT, SessionRules

CAMPAIGN = int(os.environ.get("FLEET_PROPERTY_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=CAMPAIGN or (8 if shared_store.SERVER else 20),
    stateful_step_count=30,
    derandomize=not CAMPAIGN,
    database=None,
    deadline=None,
    print_blob=True,
)
# Few words, so that texts are equal, similar and different often enough.
WORDS = st.sampled_from(["read", "Read", "write", "tests", "for", "login", "the", "parser"])
TEXT = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
ID = st.none() | st.sampled_from(["1", "2", "3", "4"])
STATUS = st.sampled_from(["pending", "in_progress", "completed"])
ITEM = st.builds(PlanItem, text=TEXT, status=STATUS, id=ID)
UPDATE = st.builds(
    PlanItem,
    text=TEXT | st.just(""),
    status=st.sampled_from(["pending", "in_progress", "completed", "dropped"]),
    id=ID,
)
OPEN = ("pending", "assigned", "in_progress", "blocked")
AS_PLANNED = {"pending": "assigned", "in_progress": "in_progress"}


class AnyPlan(RuleBasedStateMachine):
    """An agent that sends plans, beside others who work on the same mission."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = SessionRules()
        for title in ("read", "write tests", "other"):
            self.desk.give(title, "other")
        self.others = self.of_others()
        self.milestones = 0

    def teardown(self) -> None:
        self.desk.close()

    def of_others(self) -> list[Any]:
        return [row for row in self.desk.rows() if row["assigned_to"] == "other"]

    def open_ones(self) -> list[tuple[str, str]]:
        """Return what is open of the agent's sorties, in order."""
        return [
            (row["title"], row["status"])
            for row in self.desk.rows()
            if row["assigned_to"] == AGENT and row["status"] in OPEN
        ]

    def send(self, planned: Planned) -> None:
        done = {row["id"] for row in self.desk.rows() if row["status"] == "completed"}
        self.desk.send(planned)
        kept = {row["id"] for row in self.desk.rows()}
        assert done <= kept, "finished work was removed"
        rows, written = self.desk.rows(), self.desk.changes()
        assert self.desk.send(planned) == [], "the same list twice is told twice"
        assert self.desk.changes() == written, "the same list twice is written twice"
        assert self.desk.rows() == rows

    @rule(items=st.lists(ITEM, max_size=6))
    def whole_list(self, items: list[PlanItem]) -> None:
        self.send(Planned(items=tuple(items), whole=True))
        wanted = [
            (normalized(item.text), AS_PLANNED[item.status])
            for item in items
            if item.status != "completed"
        ]
        assert [(normalized(title), status) for title, status in self.open_ones()] == wanted
        done = sum(item.status == "completed" for item in items)
        mine = [row for row in self.desk.rows() if row["assigned_to"] == AGENT]
        assert sum(row["status"] == "completed" for row in mine) >= done

    @rule(item=UPDATE)
    def update(self, item: PlanItem) -> None:
        before = self.open_ones()
        self.send(Planned(items=(item,), whole=False))
        after = self.open_ones()
        # One item more, one less, or one that is another now.
        assert abs(len(after) - len(before)) <= 1
        if item.text and item.status in AS_PLANNED:
            assert (normalized(item.text), AS_PLANNED[item.status]) in [
                (normalized(title), status) for title, status in after
            ]

    @rule(number=st.integers(0, 2), done=st.booleans())
    def others_work(self, number: int, done: bool) -> None:
        sortie = self.others[number]
        if sortie["status"] in OPEN:
            sorties.start(self.desk.tx, self.desk.ctx, SortieStart(sortie["id"], "other"))
            if done:
                request = SortieComplete(sortie["id"], agent_id="other")
                sorties.complete(self.desk.tx, self.desk.ctx, request)
        self.others = self.of_others()

    @invariant()
    def others_are_left_alone(self) -> None:
        assert self.of_others() == self.others

    @invariant()
    def milestones_fire_once(self) -> None:
        fired = self.desk.tx.all(
            "SELECT trigger_details FROM checkpoints WHERE trigger = 'progress' ORDER BY seq"
        )
        told = [row["trigger_details"] for row in fired]
        for one, next_one in zip_longest(told, told[1:]):
            assert next_one is None or int(one.split()[1][:-1]) < int(next_one.split()[1][:-1])

    @invariant()
    def the_counts_are_right(self) -> None:
        row = self.desk.tx.one("SELECT * FROM missions")
        assert row is not None
        rows = self.desk.rows()
        assert row["total_sorties"] == len(rows)
        assert row["completed_sorties"] == sum(each["status"] == "completed" for each in rows)


def test_any_plan_is_followed() -> None:
    run_state_machine_as_test(AnyPlan, settings=SETTINGS)
