"""``mission show --at``, ``checkpoint diff`` of times, and how people write a time."""

import time
from argparse import ArgumentTypeError

import pytest

from fleetctl.moments import checkpoint_or_moment, moment
from fleetd.protocol.timestamps import iso, to_ms

NOON = to_ms("2026-01-05T12:00:00.000Z")


@pytest.fixture
def noon_in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr("fleetctl.output.console.now_ms", lambda: NOON)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("2h", "2026-01-05T10:00:00.000Z"),
        ("2h ago", "2026-01-05T10:00:00.000Z"),
        (" 90s ago ", "2026-01-05T11:58:30.000Z"),
        ("11:05", "2026-01-05T11:05:00.000Z"),
        ("9:05", "2026-01-05T09:05:00.000Z"),
        ("11:05:30", "2026-01-05T11:05:30.000Z"),
        ("14:05", "2026-01-04T14:05:00.000Z"),
        ("9:05:30", "2026-01-05T09:05:30.000Z"),
        ("23:59Z", "2026-01-04T23:59:00.000Z"),
        # There it is 02:00 of the next day already.
        ("1:30+14:00", "2026-01-05T11:30:00.000Z"),
        ("2:30+14:00", "2026-01-04T12:30:00.000Z"),
        ("2026-01-03", "2026-01-03T00:00:00.000Z"),
        ("2026-01-03 14:05", "2026-01-03T14:05:00.000Z"),
        ("2026-01-03T14:05:06.789Z", "2026-01-03T14:05:06.789Z"),
        ("2026-01-03T14:05+02:00", "2026-01-03T12:05:00.000Z"),
    ],
)
def test_a_time_is_read_as_people_write_it(noon_in_utc, said, meant):
    assert moment(said) == meant
    assert checkpoint_or_moment(said) == meant


@pytest.mark.parametrize("said", ["", "soon", "25:00", "2026-13-01", "2x", "9" * 40 + "d", "12:"])
def test_what_is_no_time_is_refused(noon_in_utc, said):
    with pytest.raises(ArgumentTypeError, match="expected a time such as"):
        moment(said)


def test_a_time_of_another_zone_stays_in_it(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    monkeypatch.setattr("fleetctl.output.console.now_ms", lambda: NOON)
    try:
        assert moment("23:59Z") == "2026-01-04T23:59:00.000Z"
        assert moment("12:30") == "2026-01-05T11:30:00.000Z"
        assert moment("13:30") == "2026-01-04T12:30:00.000Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_id_is_no_time():
    assert checkpoint_or_moment("chk-1a2b3c4d") == "chk-1a2b3c4d"


def now():
    time.sleep(0.005)
    told = iso(time.time_ns() // 1_000_000)
    time.sleep(0.005)
    return told


def test_a_mission_is_shown_as_it_was(done, run, mission):
    first, second = [each["id"] for each in done("sortie", "list", "--json").json]
    done("lock", "acquire", "src/a.py", "--agent", "a")
    then = now()
    done("sortie", "complete", first, "--agent", "a")
    done("sortie", "create", "Three")
    shown = done("mission", "show", mission, "--at", then)
    assert "Progress: 0% (0/2 sorties complete)" in shown.out
    assert "Made from: its creation and the events after it" in shown.out
    assert "Three" not in shown.out
    assert "src/a.py" in shown.out
    found = done("mission", "show", "--at", then, "--json").json
    assert [each["id"] for each in found["sorties"]] == [first, second]
    assert found["checkpoint_id"] is None
    done("checkpoint")
    later = now()
    found = done("mission", "show", mission, "--at", later, "--json").json
    assert found["checkpoint_id"].startswith("chk-")
    assert found["completed_sorties"] == 1
    diff = done("checkpoint", "diff", then, later)
    assert "1 sortie completed, 1 sortie added" in diff.out
    assert "moment" in diff.out
    plural = done("checkpoints", "diff", then, "--mission", mission, "--json").json
    assert (plural["before"]["moment"], plural["after"]["moment"]) == (True, False)
    mixed = done("checkpoint", "diff", then, found["checkpoint_id"], "--json").json
    assert mixed["after"]["checkpoint_id"] == found["checkpoint_id"]


def test_moments_that_cannot_be_shown_say_why(done, run, mission):
    early = run("mission", "show", mission, "--at", "2020-01-05")
    assert early.status == 1
    assert "was created at" in early.err
    late = run("mission", "show", mission, "--at", "2999-01-05")
    assert late.status == 2
    assert "in the future" in late.err
    wrong = run("mission", "show", mission, "--at", "soon")
    assert wrong.status == 2
    assert "expected a time such as 14:05" in wrong.err
    assert run("mission", "show", "msn-99999999", "--at", "1s").status == 4
