"""The search that judges histories of locks: what it must explain and what it must reject."""

import dataclasses
import math
import random
from typing import Any

import pytest

from fleetd.protocol.timestamps import iso
from tests.chaos.campaign import Red
from tests.chaos.lock_history import check_rows
from tests.chaos.lock_model import HeldLock, Op, after, unexplained

LEASE = 100


def grant(agent: str, at: int, token: int, **more: Any) -> Op:
    return Op(
        "grant",
        agent,
        at - 1,
        at + 1,
        at,
        lock_id=f"lck-{token}",
        token=token,
        length=LEASE,
        **more,
    )


def seen(act: Any, agent: str, called: float, answered: float, token: int, **more: Any) -> Op:
    return Op(act, agent, called, answered, lock_id=f"lck-{token}", token=token, **more)


ONE, TWO = grant("one", 1_000, 1), grant("two", 1_100, 2)
GOOD = {
    "one after the other's lease": [ONE, TWO],
    "one after the other's release": [
        ONE,
        Op("end", "one", 1_010, 1_012, 1_011, lock_id="lck-1", token=1),
        grant("two", 1_011, 2),
    ],
    "a lease that its holder's work prolonged": [
        ONE,
        Op("touch", "one", 1_050, 1_052, 1_051),
        seen("valid", "one", 1_140, 1_141, 1),
        grant("two", 1_151, 2),
    ],
    "a call that nobody was answered, and that happened": [
        grant("one", 1_000, 1, optional=True),
        seen("held", "two", 1_050, 1_051, 1, until=1_100),
    ],
    "a call that nobody was answered, and that did not happen": [
        grant("one", 1_000, 1, optional=True),
        grant("two", 1_000, 2),
    ],
    "two at once of which one saw what was before": [
        ONE,
        Op("end", "one", 1_010, 1_030, 1_020, lock_id="lck-1", token=1),
        seen("valid", "one", 1_012, 1_040, 1),
    ],
    "a holder that was overtaken is refused": [
        ONE,
        TWO,
        seen("invalid", "one", 1_150, 1_151, 1),
        seen("refused", "one", 1_152, 1_153, 1),
    ],
}
BAD = {
    "two leases overlap": [ONE, grant("two", 1_099, 2)],
    "a token is given again": [ONE, grant("two", 1_100, 1)],
    "a token is lower than one before": [grant("one", 1_000, 2), grant("two", 1_100, 1)],
    "a token is good after its lease": [ONE, seen("valid", "one", 1_101, 1_102, 1)],
    "a token is good after it was overtaken": [ONE, TWO, seen("valid", "one", 1_150, 1_151, 1)],
    "a token is refused while its lease runs": [ONE, seen("invalid", "one", 1_050, 1_051, 1)],
    "somebody is said to hold it who has released it": [
        ONE,
        Op("end", "one", 1_010, 1_012, 1_011, lock_id="lck-1", token=1),
        seen("held", "two", 1_020, 1_021, 1, until=1_100),
    ],
    "a lease is prolonged after its end": [
        ONE,
        Op("renew", "one", 1_119, 1_121, 1_120, lock_id="lck-1", token=1, length=LEASE),
    ],
    "two release one lock": [
        ONE,
        Op("end", "one", 1_010, 1_012, 1_011, lock_id="lck-1", token=1),
        Op("end", "one", 1_020, 1_022, 1_021, lock_id="lck-1", token=1),
    ],
    "an answer tells of what came only later": [
        seen("held", "two", 900, 901, 1, until=1_100),
        ONE,
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_history_that_has_an_order_is_explained(history: list[Op]) -> None:
    assert unexplained(history) is None
    assert unexplained(history[::-1]) is None


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_a_history_that_has_none_is_not(history: list[Op]) -> None:
    assert unexplained(history) in history


def test_what_nobody_was_answered_cannot_have_happened_before_it_was_called() -> None:
    late = grant("one", 1_000, 1, optional=True)
    assert late.answered < math.inf
    early = seen("held", "two", 900, 901, 1, until=1_100)
    assert unexplained([early, late]) == early


def row(token: int, begun: int, until: int, **more: Any) -> dict[str, Any]:
    found = {"normalized_path": "/a", "fencing_token": token, "released_at": None}
    return found | {"acquired_at": iso(begun), "expires_at": iso(until)} | more


def test_the_rows_of_locks_may_not_overlap() -> None:
    check_rows([row(1, 0, 10), row(2, 10, 20)])
    check_rows([row(1, 0, 10, released_at=iso(5)), row(2, 5, 20)])
    with pytest.raises(Red, match="held twice"):
        check_rows([row(2, 9, 20), row(1, 0, 10)])
    check_rows([row(2, 9, 20), row(1, 0, 10)], slack_ms=1)
    with pytest.raises(Red, match="given twice"):
        check_rows([row(1, 0, 10), row(1, 10, 20)])


def test_clocks_that_differ_a_little_explain_a_little() -> None:
    def ops(slack: int) -> list[Op]:
        early = {"lock_id": "b", "length": LEASE, "until": 97 + 2 * LEASE, "slack": slack}
        return [
            grant("a", 100, 1, slack=slack),
            Op("grant", "b", 96 + LEASE, 98 + LEASE, 97 + LEASE, token=2, **early),
        ]

    assert unexplained(ops(0)) is not None
    assert unexplained(ops(5)) is None


def test_what_a_holder_did_as_its_lease_ended_may_have_come_too_late() -> None:
    def ops(slack: int) -> list[Op]:
        return [ONE, Op("touch", "one", 1_095, 1_100, 1_098, slack=slack), grant("two", 1_102, 2)]

    assert unexplained(ops(0)) is not None
    assert unexplained(ops(1)) is None


def test_who_is_refused_in_a_fleet_may_have_a_later_time_than_what_comes_after() -> None:
    """A machine was told that a lease ends at 1,100, although its holder began to work at 1,050."""

    def ops(slack: int) -> list[Op]:
        return [
            grant("one", 1_000, 1, slack=slack),
            Op("touch", "one", 1_049, 1_091, 1_050, slack=slack),
            seen("held", "two", 1_080, 1_085, 1, until=1_100, slack=slack),
            seen("held", "three", 1_060, 1_090, 1, until=1_150, slack=slack),
        ]

    assert unexplained(ops(0)) is not None
    assert unexplained(ops(1)) is None


def test_who_holds_nothing_may_work_at_any_time_in_a_fleet() -> None:
    def ops(slack: int) -> list[Op]:
        return [
            grant("one", 1_000, 1, slack=slack),
            Op("touch", "two", 990, 1_091, 1_080, slack=slack),
            Op("renew", "one", 1_019, 1_095, 1_020, "lck-1", 1, LEASE, slack=slack),
            seen("held", "two", 1_092, 1_094, 1, until=1_100, slack=slack),
            seen("held", "two", 1_096, 1_099, 1, until=1_120, slack=slack),
        ]

    assert unexplained(ops(0)) is not None
    assert unexplained(ops(1)) is None


def test_a_change_in_a_fleet_may_have_waited_for_its_turn() -> None:
    def ops(slack: int) -> list[Op]:
        early = {"lock_id": "lck-2", "token": 2, "length": LEASE, "slack": slack}
        return [
            grant("one", 1_010, 1, slack=slack),
            Op("end", "one", 1_020, 1_022, 1_021, lock_id="lck-1", token=1, slack=slack),
            Op("grant", "two", 1_000, 1_040, 1_001, **early),
        ]

    assert unexplained(ops(0)) is not None
    assert unexplained(ops(1)) is None
    # It cannot have waited for an operation that came after its answer.
    answered = [*ops(1)[:2], dataclasses.replace(ops(1)[2], answered=1_015)]
    assert unexplained(answered) is not None


@pytest.mark.parametrize("slack", [0, 5])
def test_a_holder_cannot_be_refused_while_its_lease_runs(slack: int) -> None:
    refused = seen("refused", "one", 1_050, 1_051, 1, slack=slack)
    assert unexplained([grant("one", 1_000, 1, slack=slack), refused]) == refused


@pytest.mark.parametrize("slack", [0, 5])
def test_a_look_sees_what_was_changed_before_it_began(slack: int) -> None:
    renewed = Op("renew", "one", 1_019, 1_025, 1_020, "lck-1", 1, LEASE, slack=slack)
    late = seen("held", "two", 1_060, 1_061, 1, until=1_100, slack=slack)
    assert unexplained([grant("one", 1_000, 1, slack=slack), renewed, late]) == late


ACTS = ("grant", "regrant", "renew", "held", "end", "refused", "valid", "invalid", "touch")


def any_op(chance: random.Random) -> Op:
    """Return a possible operation on one of three locks."""
    at, token = chance.randrange(0, 60, 5), chance.randrange(1, 4)
    act = chance.choice((*ACTS, "grant", "touch"))
    agent = f"agent-{chance.choice((token, token % 2))}"
    return Op(
        act,
        agent,
        at - chance.randrange(10),
        at + chance.randrange(10),
        None if act in ("held", "valid", "invalid", "refused") else at,
        lock_id=f"lck-{token}",
        token=token,
        length=20,
        until=at + chance.choice((10, 20, 20)),
        needs_lease=chance.random() < 0.7,
        optional=chance.random() < 0.3,
        slack=chance.choice((0, 5)),
    )


def has_an_order(ops: list[Op]) -> bool:
    """Try all possible orders."""

    def goes_on(left: tuple[Op, ...], held: HeldLock) -> bool:
        must = [op for op in left if not op.optional]
        bound = min((op.answered for op in must), default=math.inf)
        return not must or any(
            goes_on((*left[:n], *left[n + 1 :]), then)
            for n, op in enumerate(left)
            if op.called <= bound
            for then in after(held, op)
        )

    return goes_on(tuple(ops), HeldLock())


@pytest.mark.parametrize("seed", range(20))
def test_what_the_search_leaves_out_would_not_have_helped(seed: int) -> None:
    chance = random.Random(seed)
    histories = [[any_op(chance) for _ in range(chance.randrange(2, 7))] for _ in range(150)]
    verdicts = [has_an_order(ops) for ops in histories]
    assert [unexplained(ops) is None for ops in histories] == verdicts
    assert set(verdicts) == {True, False}
