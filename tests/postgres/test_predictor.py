"""What a question will be answered, by what was answered and written before."""

import re
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.core.assigned import Assigned, Counter
from fleetd.store.postgres.predictor import (
    ACTIVITY,
    SURE,
    Key,
    NotKnown,
    OwnWrites,
    Pairs,
    Predictor,
    PriorWrites,
    Write,
)
from fleetd.store.postgres.shape import boolean_columns, shape_of
from tests.postgres.shared_stores import running
from tests.support.postgres_server import LocalPostgres

AGENT = "SELECT * FROM agents WHERE id = :id"
ENTER = "INSERT INTO agents (id, role, seen) VALUES (:id, :role, :now)"
SEEN = "UPDATE agents SET seen = :now, seq = :seq WHERE id = :id"


def agent(name: str) -> Key:
    return AGENT, (name,)


def entered(name: str, now: str) -> PriorWrites:
    return (Write(ENTER, {"id": name, "role": "boss", "now": now}),)


def row(name: str, now: str, **more: Any) -> Pairs:
    return [("id", name), ("role", "boss"), ("seen", now), ("active", 1), *more.items()]


def sure(predictor: Predictor, name: str, *, times: int = SURE) -> None:
    """Have an agent be seen again and again, as its own daemon writes."""
    for number in range(times + 1):
        predictor.note(agent(name), [row(name, f"12:00:{number:02}")])
        saw = (Write(SEEN, {"id": name, "now": f"12:00:{number + 1:02}", "seq": 1}),)
        predictor.committed(agent(name), [row(name, f"12:00:{number:02}")], saw)


def test_what_was_never_asked_is_not_known() -> None:
    with pytest.raises(NotKnown):
        Predictor().guess(agent("ada"))


def test_a_question_has_its_last_answer_else_that_of_one_like_it() -> None:
    predictor = Predictor()
    predictor.note(agent("ada"), [row("ada", "12:00:00")])
    predictor.note(agent("bob"), [])
    assert predictor.guess(agent("ada")) == [row("ada", "12:00:00")]
    assert predictor.guess(agent("eve")) == []


def test_what_a_rule_read_of_its_own_writes_is_predicted_for_other_parameters() -> None:
    predictor = Predictor()
    predictor.note(agent("ada-lovelace"), [])
    predictor.saw_own(
        agent("ada-lovelace"),
        entered("ada-lovelace", "12:00:00"),
        [row("ada-lovelace", "12:00:00")],
    )
    predicted = predictor.guess_own(agent("grace-hopper"), entered("grace-hopper", "13:00:00"), [])
    assert predicted == [row("grace-hopper", "13:00:00")]
    # Nothing is known of another statement.
    other = (Write("DELETE FROM agents WHERE id = :id", {"id": "grace-hopper"}),)
    was = [row("grace-hopper", "12:59:00")]
    assert predictor.guess_own(agent("grace-hopper"), other, was) == was


def test_where_the_row_before_was_not_known_what_no_write_tells_is_as_it_was() -> None:
    predictor = Predictor()
    saw = (Write(SEEN, {"id": "ada-1", "now": "12:00:01", "seq": 1}),)
    predictor.saw_own(agent("ada-1"), saw, [row("ada-1", "12:00:01", mission="msn-1")])
    now = (Write(SEEN, {"id": "bob-1", "now": "12:00:09", "seq": 2}),)
    before = [row("bob-1", "12:00:08", mission="msn-2")]
    assert predictor.guess_own(agent("bob-1"), now, before) == [
        row("bob-1", "12:00:09", mission="msn-2")
    ]
    # A row that was not there is as the last one was.
    assert predictor.guess_own(agent("bob-1"), now, []) == [
        row("bob-1", "12:00:09", mission="msn-1")
    ]


def test_after_training_all_is_asked_for_that_is_not_of_own_writes() -> None:
    predictor = Predictor()
    sure(predictor, "ada-1", times=SURE + 1)
    assert predictor.trusted(agent("ada-1"))
    saw = (Write(SEEN, {"id": "ada-1", "now": "13:00:00", "seq": 1}),)
    predictor.forget_answers()
    assert predictor.trusted(agent("ada-1")) is None
    assert predictor.guess(agent("bob-1")) == predictor.guess(agent("ada-1"))
    before = [row("ada-1", "12:59:59")]
    assert predictor.guess_own(agent("ada-1"), saw, before) == [row("ada-1", "13:00:00")]


@pytest.mark.parametrize(
    ("columns", "truths"),
    [
        ("a.id, a.pid = :pid AS here", {"here"}),
        ("EXISTS (SELECT 1 FROM b WHERE b.x = a.x) AS is_there, count(*) AS number", {"is_there"}),
        ("coalesce(a.x = 1, 0) AS one, (a.x = 1) OR a.y IN (1, 2) AS two", {"two"}),
        ("CASE WHEN a.x = 1 THEN 2 ELSE 3 END AS x, max(a.y) AS y, a.z", set()),
    ],
)
@pytest.mark.parametrize("frame", ["SELECT {} FROM a WHERE a.x <> 3", "DELETE FROM a RETURNING {}"])
def test_columns_that_are_conditions_are_told_from_numbers(
    columns: str, truths: set[str], frame: str
) -> None:
    assert boolean_columns(frame.format(columns)) == truths


def test_writes_that_changed_nothing_of_what_was_read_need_no_template() -> None:
    predictor = Predictor()
    predictor.note(agent("ada"), [])
    predictor.saw_own(agent("ada"), entered("bob", "12:00:00"), [])
    was = [row("eve-1", "11:00:00")]
    assert predictor.guess_own(agent("eve-1"), entered("bob", "12:00:00"), was) == was


def test_the_next_answer_follows_from_what_was_committed_since() -> None:
    predictor = Predictor()
    sure(predictor, "ada-1", times=2)
    assert predictor.guess(agent("ada-1")) == [row("ada-1", "12:00:03")]


def test_numbers_of_committed_statements_are_known() -> None:
    own = OwnWrites()
    own.note(shape_of(SEEN), SEEN, {"id": "ada", "now": "12:00", "seq": Assigned("events", 2)})
    before: dict[Counter, int] = {"events": 40, "fencing": 0}
    [written] = own.read_by(shape_of(AGENT), before)
    assert written.params == {"id": "ada", "now": "12:00", "seq": 42}
    assert own.read_by(shape_of("SELECT * FROM missions")) == ()


def test_a_number_that_is_not_known_yet_is_predicted_as_such() -> None:
    predictor = Predictor()

    def saw(number: int | Assigned) -> PriorWrites:
        return (Write(SEEN, {"id": "ada-1", "now": "12:00:01", "seq": number}),)

    was = [row("ada-1", "12:00:00", seq=7)]
    predictor.note(agent("ada-1"), was)
    predictor.saw_own(agent("ada-1"), saw(251), [row("ada-1", "12:00:01", seq=251)])
    given = Assigned("events", 1)
    [predicted] = predictor.guess_own(agent("ada-1"), saw(given), was)
    assert dict(predicted)["seq"] is given
    # Such a guess may be wrong, too.
    found = [row("ada-1", "12:00:02", seq=300)]
    predictor.failed(agent("ada-1"), saw(given), was, found)
    assert predictor.guess_own(agent("ada-1"), saw(given), was) == found


def test_what_was_right_often_enough_is_sure_until_it_is_missed() -> None:
    predictor = Predictor()
    sure(predictor, "ada-1", times=SURE - 1)
    assert predictor.trusted(agent("ada-1")) is None
    sure(predictor, "ada-2", times=2)  # what is learned of one holds for all
    assert predictor.trusted(agent("ada-2")) == [row("ada-2", "12:00:03")]
    predictor.missed(agent("ada-2"))
    assert predictor.trusted(agent("ada-2")) is None


def test_a_new_question_is_sure_when_new_ones_had_the_same_answer() -> None:
    predictor = Predictor()
    for number in range(SURE):
        predictor.note(agent(f"new-{number}"), [])
        assert predictor.trusted(agent("newest")) is None
    predictor.note(agent("new-again"), [])
    assert predictor.trusted(agent("newest")) == []
    predictor.missed(agent("newest"))
    assert predictor.trusted(agent("newest")) is None


@pytest.mark.parametrize("column", sorted(ACTIVITY))
def test_activity_is_always_asked_for(column: str) -> None:
    predictor = Predictor()
    for number in range(2 * SURE):
        known = [row("ada-1", f"12:00:{number:02}", **{column: "long ago"})]
        predictor.note(agent("ada-1"), known)
        saw = (Write(SEEN, {"id": "ada-1", "now": f"12:00:{number + 1:02}", "seq": 1}),)
        predictor.committed(agent("ada-1"), known, saw)
    assert predictor.guess(agent("ada-1")) == [
        row("ada-1", f"12:00:{2 * SURE:02}", **{column: "long ago"})
    ]
    assert predictor.trusted(agent("ada-1")) is None


@pytest.mark.parametrize("column", sorted(ACTIVITY))
def test_activity_of_rows_that_a_rule_did_not_make_is_not_predicted(column: str) -> None:
    predictor, joined = Predictor(), "SELECT * FROM missions JOIN agents WHERE agents.id = :id"
    key = (joined, ("ada-1",))
    moved = (Write("UPDATE agents SET mission_id = NULL WHERE id = :id", {"id": "ada-1"}),)
    predictor.note(key, [])
    predictor.saw_own(key, moved, [[("id", "msn-1"), (column, "at noon")]])
    assert predictor.guess_own(key, moved, []) == []
    # All of a row that it inserts is its own.
    table = ACTIVITY[column]
    made = (Write(f"INSERT INTO {table} (id) VALUES (:id)", {"id": "ada-1"}),)
    predictor.saw_own(key, made, [[("id", "ada-1"), (column, 0)]])
    assert predictor.guess_own(key, made, []) == [[("id", "ada-1"), (column, 0)]]
    # What was there before is as it was just asked for.
    predictor.note(key, [[("id", "msn-1"), (column, "at noon")]])
    predictor.saw_own(key, moved, [[("id", "ada-1"), (column, "at noon")]])
    now = [[("id", "msn-1"), (column, "at one")]]
    assert predictor.guess_own(key, moved, now) == [[("id", "ada-1"), (column, "at one")]]


def test_tries_that_fail_are_spaced_out_until_one_succeeds() -> None:
    predictor, own = Predictor(), entered("ada-1", "12:00:00")
    assert not predictor.backs_off(agent("ada-1"), own)
    predictor.failed(agent("ada-1"), own, [], [row("ada-1", "12:00:00")])
    assert predictor.guess_own(agent("ada-1"), own, []) == [row("ada-1", "12:00:00")]
    assert [predictor.backs_off(agent("ada-1"), own) for _ in range(3)] == [True, True, False]
    predictor.failed(agent("ada-1"), own, [], [])
    # What failed twice is as the store has it.
    was = [row("ada-1", "11:00:00")]
    assert predictor.guess_own(agent("ada-1"), own, was) == was
    assert sum(predictor.backs_off(agent("ada-1"), own) for _ in range(10)) == 4
    predictor.failed(agent("ada-1"), own, [], None)
    predictor.succeeded(agent("ada-1"), own)
    assert not predictor.backs_off(agent("ada-1"), own)


def test_what_is_long_is_not_kept() -> None:
    predictor = Predictor()
    predictor.note(agent("ada"), [row("ada", "12:00:00")])
    long = (Write(SEEN, {"id": "ada", "now": "x" * 5_000, "seq": 1}),)
    predictor.committed(agent("ada"), [row("ada", "12:00:00")], long)
    predictor.note(agent("bob"), [])
    assert predictor.guess(agent("ada")) == []  # as of any other


def test_other_numbers_of_rows_are_no_trouble() -> None:
    predictor = Predictor()
    saw = (Write(SEEN, {"id": "ada-1", "now": "12:00:01", "seq": 1}),)
    before = [row("ada-1", "12:00:00"), row("ada-1", "12:00:00")]
    predictor.note(agent("ada-1"), before)
    predictor.committed(agent("ada-1"), before, saw)
    predictor.note(agent("ada-1"), [row("ada-1", "12:00:01"), row("ada-1", "12:00:00")])
    predictor.committed(agent("ada-1"), [], saw)
    assert predictor.guess(agent("ada-1")) == []


async def test_columns_of_activity_are_those_that_the_server_does_not_compare(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    source = "SELECT prosrc FROM pg_proc WHERE proname = 'without_activity'"
    async with running(postgres.url(database), tmp_path) as one:
        text = await one.store.read(lambda tx: tx.value(source))
    [listed] = re.findall(r"ARRAY\[([^]]*)\]", text)
    assert set(re.findall(r"'(\w+)'", listed)) == ACTIVITY.keys()
    columns = (
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
    )
    async with running(postgres.url(database), tmp_path) as one:
        found = {tuple(row.values()) for row in await one.store.read(lambda tx: tx.all(columns))}
    assert {(table, column) for column, table in ACTIVITY.items()} <= found
