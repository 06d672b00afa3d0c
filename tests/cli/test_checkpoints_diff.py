"""``fleetctl checkpoint diff``: what was done between two checkpoints, in words."""

import json

import pytest

from fleetctl.client.models import decode
from fleetctl.output.views import checkpoint_diff


@pytest.fixture
def work(done, mission):
    """Return a function that completes the next sortie of the mission."""
    ids = [each["id"] for each in done("sortie", "list", "--json").json]

    def complete() -> str:
        sortie = ids.pop(0)
        done("sortie", "start", sortie, "--agent", "spec-1")
        done("sortie", "complete", sortie)
        return sortie

    return complete


def test_two_checkpoints_are_compared_line_by_line(done, mission, work):
    before = done("checkpoint", "--note", "Before").id("chk")
    sortie = work()
    done("lock", "acquire", "/a.py", "--agent", "spec-1", "--mission", mission)
    after = done("checkpoint").id("chk")

    lines = done("checkpoints", "diff", before, after).out.splitlines()

    assert lines[0] == f"Test ({mission})"
    assert lines[1].startswith(f"  from {before}  20")
    assert lines[1].endswith("Z  manual (Before)")
    assert lines[2].startswith(f"  to   {after}  20")
    assert lines[4:7] == [
        "Progress: 0% -> 50% (0/2 -> 1/2 sorties complete)",
        "In between: 1 sortie completed, 1 lock taken.",
        "",
    ]
    assert lines[7:12] == [
        "Sorties:",
        f"  ~ {sortie}  One",
        "      status: pending -> completed",
        "      agent: none -> spec-1",
        "      progress: 0 -> 100",
    ]
    assert lines[13:15] == ["Locks:", "  + /a.py  spec-1"]
    assert lines[16] == "Recovery context:"
    assert "  - next steps: One (pending)" in lines


def test_without_a_second_one_it_is_compared_with_now(done, mission, work):
    before = done("checkpoint").id("chk")
    assert done("checkpoints", "diff", before).out.endswith("\nNo differences.\n")
    work()

    by_id = done("checkpoints", "diff", before[:9], "--json").json
    newest = done("checkpoints", "diff", "--json").json

    assert by_id["before"]["checkpoint_id"] == before
    assert by_id["after"]["checkpoint_id"] is None
    assert newest["before"]["trigger"] == "progress"  # that of the milestone
    assert newest["equal"] is True
    assert "  to   now  " in done("checkpoints", "diff", before).out


def test_the_newest_two_are_compared_and_undo_checkpoints_are_none_of_them(done, mission, work):
    first = done("checkpoint").id("chk")
    second = done("checkpoint").id("chk")

    found = done("checkpoints", "diff", "--last", "--json").json

    assert [found[side]["checkpoint_id"] for side in ("before", "after")] == [first, second]
    work()
    done("resume", "--checkpoint", first, "--rewind", "--yes")
    shown = done("checkpoints", "diff", "--last", "--json").json
    listed = done("checkpoints", "list", "--json").json
    usable = [each["id"] for each in listed if not each["undo"]]
    assert [shown["after"]["checkpoint_id"], shown["before"]["checkpoint_id"]] == usable[:2]


def test_going_backwards_is_said(done, mission, work):
    first = done("checkpoint").id("chk")
    work()
    second = done("checkpoint").id("chk")

    assert "what going back to it would change" in done("checkpoints", "diff", second, first).out


def test_with_too_few_checkpoints_it_says_what_to_do(run, done, mission):
    none = run("checkpoints", "diff")
    done("checkpoint")
    one = run("checkpoints", "diff", "--last")

    assert (none.status, one.status) == (1, 1)
    assert none.err.startswith(f"Error: Mission {mission} has no checkpoint.\nHint: ")
    assert one.err.startswith(f"Error: Mission {mission} has only one checkpoint.\nHint: ")


def test_wrong_ids_and_options_are_refused(run, done, mission):
    taken = done("checkpoint").id("chk")
    other = done("checkpoint", "--mission", done("mission", "create", "B").id("msn")).id("chk")

    assert run("checkpoints", "diff", "chk-00000000").status == 4
    assert run("checkpoints", "diff", taken, "--last").status == 2
    strangers = run("checkpoints", "diff", taken, other)
    assert strangers.status == 2
    assert "Only checkpoints of one mission can be compared" in strangers.err


def a_side(**more: object) -> dict[str, object]:
    return {
        "moment": False,
        "checkpoint_id": None,
        "timestamp": "2026-01-05T12:00:00.000Z",
        "trigger": None,
        "trigger_details": None,
        "seq": 1,
        "progress_percent": 0,
        "total_sorties": 1,
        "completed_sorties": 0,
    } | more


def test_nothing_stored_steers_the_terminal(capsys):
    evil = "\x1b[31mred\n\x07\u202e"
    found = {
        "mission_id": "msn-1",
        "mission_title": evil,
        "before": a_side(trigger_details=evil, checkpoint_id="chk-1", trigger="manual"),
        "after": a_side(),
        "equal": False,
        "mission": [{"field": "title", "before": evil, "after": None}],
        "sorties": {
            "added": [{"id": "srt-1", "title": evil, "status": "in_progress", "assigned_to": evil}],
            "removed": [{"id": "srt-2", "title": evil}],
            "changed": [
                {
                    "id": "srt-3",
                    "title": evil,
                    "changes": [{"field": "files", "before": [evil], "after": []}],
                }
            ],
        },
        "locks": {
            "gained": [],
            "released": [],
            "changed": [{"file": evil, "before": evil, "after": "x"}],
        },
        "messages": {
            "new": [{"id": "msg-1", "from": evil, "to": [evil], "subject": evil}],
            "gone": [],
            "changed": [{"id": "msg-2", "subject": evil, "before": [evil], "after": []}],
        },
        "recovery_context": [{"field": "next_steps", "before": ["a", "b"], "after": ["b", "a"]}],
        "warnings": [],
    }

    checkpoint_diff.show_difference(decode(json.dumps(found).encode()))

    printed = capsys.readouterr().out
    assert not set(printed) & {"\x1b", "\x07", "\u202e"}
    assert "  + srt-1  [31mred  (in progress, [31mred )" in printed
    assert "  ~ next steps: in another order" in printed
    assert "      - files: [31mred " in printed


def test_what_is_no_id_is_named_as_the_help_names_it(run, done, mission):
    refused = run("checkpoints", "diff", "nonsense")

    assert refused.status == 2
    assert refused.err.startswith("Error: before: expected an id such as chk-1a2b3c4d")
    assert "BEFORE" in done("checkpoints", "diff", "--help").out
