"""What fleetd added to recorded requests: found by kind, and anything else is an error."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.marks import marks
from benchmarks.requests.page import NAME, Measured, sentence, text, write
from tests.agents.added import Recording, Request, compared, taken_out
from tests.agents.cost import Cost
from tests.agents.script import Asked, Kind

BRIEFING = (
    "## Recovery Context\n\nYou are resuming a mission.\n\n### Next Steps\n- Try it\n\n"
    "Please review the current state and continue the mission."
)
MAIL = "1 unread message waits for worker, the newest from bob: “Hi” (fleetctl mail inbox worker)."
CONFLICT = (
    "Other agents changed files that worker changed within the same hour: hello.py by rival at"
    " 2026-01-05T12:00:00.000Z (fleetctl conflicts)."
)
BEGIN, END = marks(NAME)


def claude(*texts: str) -> dict[str, Any]:
    """Return a request whose last message has these parts."""
    parts = [{"type": "text", "text": each} for each in texts]
    return {"model": "m", "messages": [{"role": "user", "content": parts}]}


def hook(said: str, event: str = "PostToolUse:Edit") -> str:
    return f"<system-reminder>\n{event} hook additional context: {said}\n</system-reminder>"


def recording(*bodies: dict[str, Any], kind: Kind = "turn", home: str = "fleet-abc") -> Recording:
    return Recording("claude", home, [Asked(kind, "/v1/messages", body) for body in bodies])


def test_each_kind_is_counted_with_what_is_around_it() -> None:
    told = claude("Go on", hook(BRIEFING, "SessionStart"), hook(f"{CONFLICT}\n{MAIL}"))

    rest, added = taken_out("claude", told)

    assert rest == claude("Go on")
    assert added["briefing"] == len(hook(BRIEFING, "SessionStart"))
    assert added["mail line"] + added["conflict line"] == len(hook(f"{CONFLICT}\n{MAIL}"))
    assert CONFLICT.startswith("Other")
    assert added["conflict line"] >= len(CONFLICT)


@pytest.mark.parametrize(
    ("harness", "frame"),
    [
        (
            "claude",
            "Done\n\n<system-reminder>\nX hook additional context: {}\n</system-reminder>",
        ),
        ("gemini", "Done\n\n<hook_context>{}</hook_context>"),
        ("opencode", "Done\n{}"),
        (
            "copilot",
            'Done\n\nTool "bash" succeeded. Additional guidance from postToolUse hooks:\n{}',
        ),
        ("copilot", "Done\n\n<system_reminder>\n{}\n</system_reminder>"),
    ],
)
def test_a_text_behind_the_result_of_a_tool_is_found(harness: str, frame: str) -> None:
    rest, added = taken_out(harness, {"content": frame.format(MAIL)})

    assert rest == {"content": "Done"}
    assert added == {"mail line": len(frame.format(MAIL)) - len("Done")}


def test_a_message_that_is_there_for_a_text_alone_goes_with_it() -> None:
    message = {"type": "message", "role": "developer", "content": [{"type": "input_text"}]}
    message["content"][0]["text"] = MAIL

    rest, added = taken_out("codex", {"input": [{"type": "other"}, message]})

    assert rest == {"input": [{"type": "other"}]}
    assert added == {"mail line": len(MAIL)}


@pytest.mark.parametrize(
    "told",
    [
        claude("Go on", hook("fleetctl context has more.")),
        claude("Go on", hook(f"{MAIL} Answer soon.")),
        claude("Go on", hook(f"{MAIL}\n\nAnswer soon.")),
        claude("Go on", MAIL),
        claude("Go on "),
        claude(),
        claude("Go on") | {"metadata": {"fleetd": "1"}},
        claude("Go on") | {"model": "n"},
    ],
)
def test_anything_else_is_an_error(told: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="turn 1 of claude"):
        compared(recording(claude("Go on")), recording(told))


def test_a_request_more_is_an_error() -> None:
    one, two = recording(claude("Go on")), recording(claude("Go on"), claude("Go on"))
    with pytest.raises(AssertionError, match="1 and 2 requests"):
        compared(one, two)
    with pytest.raises(AssertionError):
        compared(recording(kind="side"), recording(claude("Title"), kind="side"))


def test_what_each_run_makes_anew_is_no_difference() -> None:
    one = claude("/tmp/fleet-a_1/project", "toolu_0123456789abcdef", "duration_ms: 900")
    other = claude("/tmp/fleet-b_2/project", "toolu_fedcba9876543210", "duration_ms: 1000")

    [found] = compared(recording(one, home="fleet-a_1"), recording(other, home="fleet-b_2"))

    assert found.added == {}


def test_requests_keep_their_order() -> None:
    asked = [Asked("turn", "", claude("a")), Asked("compaction", "", claude("b", hook(MAIL)))]
    without = [asked[0], Asked("compaction", "", claude("b"))]
    kept = [*asked, Asked("turn", "", claude("c"))]
    plain = [*without, Asked("turn", "", claude("c"))]

    found = compared(Recording("claude", "fleet-a", plain), Recording("claude", "fleet-b", kept))

    assert [each.kind for each in found] == ["turn", "compaction", "turn"]
    assert [each.more for each in found] == [0, len(hook(MAIL)), 0]


@pytest.fixture
def measured() -> Measured:
    alone = [
        Request("turn", 40_000, {}),
        Request("compaction", 50_000, {}),
        Request("turn", 45_000, {"briefing": 1_344}),
    ]
    among_others = [
        Request("turn", 40_000, {"conflict line": 178}),
        Request("compaction", 50_000, {"conflict line": 217, "mail line": 189}),
        Request("turn", 45_000, {"briefing": 1_474, "mail line": 189}),
    ]
    cost = Cost("claude", "2.1.330", alone, among_others, 706)
    return Measured(
        costs=[cost], absent={"codex": "no npm"}, date="2026-01-05", revision="abc", seconds=9.0
    )


def test_the_tables_have_each_kind_and_each_request(measured: Measured) -> None:
    told = text(measured)
    row = "| Claude Code 2.1.330 | 40,000 to 45,000 | 0 | 178 | 189 | 1,344 | 706 |"
    assert row in told
    assert "| Claude Code | 137,247 | 2,247 | 1.6 % | 178, (406), 1,663 |" in told
    assert "Not measured: Codex, no npm." in told


def test_the_sentence_has_round_numbers(measured: Measured) -> None:
    said = " ".join(sentence(measured).split())
    assert said.startswith("Hooks add nothing to an ordinary request to the model.")
    assert "A line about mail or a conflict adds 180 to 190 characters" in said
    assert "a briefing in a short session 1,300," in said
    assert said.endswith("the optional tools 710.")


def test_an_ordinary_request_that_costs_something_is_told(measured: Measured) -> None:
    measured.costs[0].alone[0].added["mail line"] = 99
    assert "| 99 |" in text(measured)
    assert sentence(measured).startswith("Hooks add up to 99 characters to an ordinary request")


def test_both_pages_keep_what_people_wrote(measured: Measured, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    pages = tmp_path / "docs" / "performance.md", tmp_path / "README.md"
    for page in pages:
        page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")

    write(tmp_path, measured)

    for page, new in zip(pages, (text(measured), sentence(measured)), strict=True):
        assert page.read_text() == f"before\n{BEGIN}\n{new}\n{END}\nafter\n"


def test_the_pages_of_this_repository_have_the_marks() -> None:
    for name in ("docs/performance.md", "README.md"):
        page = (Path(__file__).parents[2] / name).read_text()
        assert page.count(BEGIN) == page.count(END) == 1
