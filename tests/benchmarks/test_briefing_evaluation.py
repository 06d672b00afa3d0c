"""The sessions and facts of the evaluation, its player, its scorer and its table."""

import json
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from benchmarks.briefing.evaluation import door, play, record, results, session, sources
from benchmarks.briefing.evaluation.__main__ import main
from benchmarks.briefing.evaluation.results import Result
from benchmarks.briefing.evaluation.scoring import score, sections, without
from benchmarks.briefing.evaluation.session import BUDGETS, Fact, Facts, Spelling, Wrong
from benchmarks.briefing.evaluation.transcript import dump, transcript
from fleetd.engine.hooks.sighting_counts import unknown_fields
from fleetd.harness.detect import recognise

NAMES = session.names()
OPEN = [name for name in NAMES if not session.session(name).held_out]
CONTRACTED = ["Next Steps", "Current Blockers", "Files Modified", "Time Context"]
# One of each CLI, with a plan, a hand-over, mail, and next to nothing.
PLAYED = (
    "claude-webhook-retries",
    "codex-takes-over-search",
    "gemini-conflict-with-codex",
    "opencode-short-yes",
)


def strings(value: Any) -> list[str]:
    """Return every text in a value."""
    if isinstance(value, dict):
        return [text for key, each in value.items() for text in (key, *strings(each))]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


def literals(accepts: list[str | Spelling]) -> list[str]:
    return [each for each in accepts if isinstance(each, str)]


# What is in the files


def test_there_are_sessions_of_four_clis_and_a_third_is_held_out() -> None:
    all_of_them = [session.session(name) for name in NAMES]
    assert len(all_of_them) >= 40
    assert len({each.title for each in all_of_them}) == len(all_of_them)
    scripted = [each for each in all_of_them if each.origin == "scripted"]
    assert len({each.project for each in scripted}) == len(scripted)
    by_cli = Counter(each.cli for each in all_of_them)
    held = Counter(each.cli for each in all_of_them if each.held_out)
    assert by_cli.keys() == held.keys() == set(get_args(session.Cli))
    assert held.total() * 3 == len(all_of_them)
    traits = {trait for each in all_of_them for trait in each.traits}
    for trait in ("short", "long", "many agents", "hand-over", "rejected plan", "failing tests"):
        assert trait in traits
    for trait in ("subagents", "background work", "unread mail", "locks held by others"):
        assert trait in traits


def test_every_session_has_its_facts_and_every_kind_of_fact_occurs() -> None:
    assert sorted(file.stem for file in session.FACTS.glob("*.json")) == NAMES
    kinds: Counter[str] = Counter()
    for name in NAMES:
        facts = session.facts(name)
        assert len(facts.facts) >= 3, name
        assert facts.wrong, name
        kinds.update(fact.kind for fact in facts.facts)
    assert kinds.keys() == set(get_args(session.Kind))
    assert min(kinds.values()) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_a_fact_is_spelled_as_the_session_has_it(name: str) -> None:
    told = session.session(name)
    steps = msgspec.to_builtins(told.steps)
    story = [transcript(told), *strings(steps), *(window.agent for window in told.windows.values())]
    for fact in session.facts(name).facts:
        known = literals(fact.accepts)
        assert not known or any(text in each for text in known for each in story), fact.what


@pytest.mark.parametrize("name", NAMES)
def test_every_payload_has_a_shape_and_fields_that_its_cli_is_known_for(name: str) -> None:
    told = session.session(name)
    for step in told.steps:
        if step.hook is None:
            continue
        window = told.windows[step.window]
        payload = {**window.fields, **step.hook}
        adapter = recognise(window.cli, payload, {})
        assert adapter.name == window.cli
        report = adapter.read(payload, None)
        assert adapter.known_events is None or report.event in adapter.known_events
        assert unknown_fields(adapter, payload) == ()
    last = told.steps[-1]
    assert last.hook is not None
    assert last.window == session.MAIN


# The player


@pytest.mark.parametrize("name", PLAYED)
async def test_a_session_gives_the_same_briefing_each_time_and_keeps_to_its_budget(
    name: str,
) -> None:
    told = session.session(name)
    texts = {budget: await play.briefing(told, budget, door.opened) for budget in BUDGETS}
    assert await play.briefing(told, 2_000, door.opened) == texts[2_000]
    for budget, text in texts.items():
        assert text.startswith("## Recovery Context"), budget
        assert len(text) <= budget
    assert len(texts[1_000]) <= len(texts[9_500])


@pytest.mark.parametrize("name", NAMES)
def test_the_past_revisions_briefings_are_recorded_at_every_budget(name: str) -> None:
    recorded = record.recorded(name)
    assert tuple(recorded) == BUDGETS
    for budget, text in recorded.items():
        assert text.startswith("## Recovery Context")
        assert len(text) <= budget


def test_the_dump_is_the_end_of_the_transcript_before_the_compaction() -> None:
    for name in NAMES:
        told = session.session(name)
        whole = transcript(told)
        assert whole.startswith("User: ")
        assert dump(told, 1_000) == whole[-1_000:]


# The scorer


def facts_of(*spelled: str, wrong: tuple[Wrong, ...] = ()) -> Facts:
    found = [Fact(kind="next step", what=each, accepts=[each]) for each in spelled]
    return Facts(facts=found, wrong=list(wrong))


BRIEFING = """\
## Recovery Context

**Mission**: Mend the parser

### Next Steps
- Write the lexer (in progress)
- Test it

### Files Modified
- src/lexer.py

Please go on."""


@pytest.mark.parametrize(
    ("heading", "lost"),
    [("Next Steps", {"Write the lexer", "Test it"}), ("Files Modified", {"src/lexer.py"})],
)
def test_without_a_section_exactly_its_facts_are_missing(heading: str, lost: set[str]) -> None:
    facts = facts_of("Mend the parser", "Write the lexer", "Test it", "src/lexer.py")
    whole, part = score(BRIEFING, facts), score(without(BRIEFING, heading), facts)
    assert not whole.missing
    assert {fact.what for fact in part.missing} == lost
    assert without(BRIEFING, heading).endswith("Please go on.")


@pytest.mark.parametrize("name", NAMES)
def test_of_a_past_briefing_each_section_carries_exactly_its_facts(name: str) -> None:
    assert len(removed_one_by_one(record.recorded(name)[9_500], session.facts(name))) >= 5


async def test_of_todays_briefing_each_section_carries_exactly_its_facts() -> None:
    lost: Counter[str] = Counter()
    for name in OPEN:
        text = await play.briefing(session.session(name), 9_500, door.opened)
        removed = removed_one_by_one(text, session.facts(name))
        assert [*removed][:4] == CONTRACTED
        lost.update(removed)
    # None of them is there for nothing: each has facts that stand nowhere else.
    below = ("Task", "What Your User Said Before", "Notes", "Now", "Running For You", "Others")
    assert min(lost[heading] for heading in ("Next Steps", *below, "Done")) >= 1


def removed_one_by_one(text: str, facts: Facts) -> dict[str, int]:
    """Remove each section in turn, and return how many facts went with each."""
    whole, removed = score(text, facts), dict[str, int]()
    for heading, below in sections(text):
        if heading in ("", "Recovery Context"):
            continue
        # What is spelled nowhere else than between this heading and the next, counted by hand.
        begin = text.index(f"### {heading}\n")
        end = begin + len(f"### {heading}") + len(below)
        cut = text[:begin] + text[end:]
        only_here = [fact for fact in whole.present if not spelled(fact, cut)]
        part = score(without(text, heading), facts)
        assert len(part.present) == len(whole.present) - len(only_here), heading
        assert set(map(id, part.missing)) == set(map(id, (*whole.missing, *only_here)))
        removed[heading] = len(only_here)
    return removed


def spelled(fact: Fact, text: str) -> bool:
    flat = " ".join(text.split())
    return any(
        " ".join(each.split()) in flat if isinstance(each, str) else re.search(each.pattern, text)
        for each in fact.accepts
    )


def test_a_planted_wrong_fact_is_found_where_it_is_wrong_and_nowhere_else() -> None:
    stale = Wrong("the reader is open", ["Write the reader"], under="(?i)next|now")
    anywhere = Wrong("it passed", [Spelling(r"make test: PASS")])
    facts = facts_of("Test it", wrong=(stale, anywhere))
    assert score(BRIEFING, facts).wrong == ()
    in_steps = BRIEFING.replace("- Test it", "- Test it\n- Write\n  the reader (to do)")
    assert score(in_steps, facts).wrong == (stale,)
    done = BRIEFING.replace("### Files", "### Done So Far\n- Write the reader\n\n### Files")
    assert score(done, facts).wrong == ()
    at_the_top = BRIEFING.replace("**Mission**:", "**Mission**: make test: PASS.")
    assert score(at_the_top, facts).wrong == (anywhere,)


@pytest.mark.parametrize("name", NAMES)
def test_each_wrong_fact_of_a_session_is_seen_when_its_briefing_states_it(name: str) -> None:
    text, facts = record.recorded(name)[9_500], session.facts(name)
    headings = ("Next Steps", "Now", "Current Blockers", "The Task", "Files Modified", "Repository")
    more = ("Running For You", "Locks You Hold", "Notes")
    for wrong in facts.wrong:
        for said in literals(wrong.accepts):
            planted = [
                score(f"{text}\n\n### {heading}\n- {said}\n", facts).wrong
                for heading in (*headings, *more)
            ]
            assert any(wrong in each for each in planted), wrong.what
        assert wrong.under is None or any(re.search(wrong.under, h) for h in (*headings, *more))


def test_a_character_carries_a_fact_once() -> None:
    facts = Facts(
        facts=[
            Fact(kind="instruction", what="both", accepts=["ab cd", "cd ef"]),
            Fact(kind="ruling", what="inside", accepts=[Spelling(r"x (?P<fact>ab)")]),
        ]
    )
    scored = score("x ab cd ef.", facts)
    assert (scored.carrying, scored.characters, scored.total) == (8, 11, 2)
    assert score("", facts).carrying == 0


# The table


def result(source: str, budget: int, text: str, *, cli: str = "claude") -> Result:
    facts = facts_of("one", "two", wrong=(Wrong("three is open", ["three"]),))
    return Result("s", cli, source, budget, score(text, facts))


def test_the_table_counts_facts_and_leaves_a_cell_empty_where_nothing_is_given() -> None:
    given = [result(sources.OURS, 1_000, "one two"), result(sources.DUMP, 1_000, "one three")]
    (head, _, first, *_) = results.table(given).split("\n")
    assert head == "| CLI | budget | fleetd | no briefing | own summary | fleetd dbba02c | dump |"
    assert first == "| claude | 1,000 | 100% · 0 · 7 · 86% |  |  |  | 50% · 1 · 9 · 33% |"
    assert "| next step | 2 | 100% |  |  |  |" in results.kinds(given)
    both = results.cell([*given, result(sources.OURS, 1_000, "")])
    assert both == results.Cell(facts=0.5, wrong=1, characters=16 / 3, carrying=9 / 16)


@pytest.mark.parametrize(
    ("ours", "other", "complaint"),
    [
        ("one two", "one", ""),
        ("one two", "one two", "dump states as much"),
        ("one", "one two", "dump states 100%, fleetd 50%"),
        ("one two three", "one", "1 facts are stale or wrong"),
        ("one", "", "50.0% of the facts, promised are 95%"),
    ],
)
def test_a_broken_promise_is_told(ours: str, other: str, complaint: str) -> None:
    given = [result(sources.OURS, 9_500, ours), result(sources.DUMP, 9_500, other)]
    broken = results.broken(given)
    assert bool(broken) == bool(complaint)
    assert not complaint or any(complaint in each for each in broken)


def test_the_command_prints_the_table_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "opencode-short-yes"
    monkeypatch.setattr("sys.argv", ["", "--session", name, "--details"])
    status = main()
    told = capsys.readouterr()
    assert status == bool(told.err)
    assert "| opencode | 9,500 |" in told.out
    monkeypatch.setattr("sys.argv", ["", "--session", name, "--json", "--budget", "1000"])
    main()
    scores = json.loads(capsys.readouterr().out)
    assert [s["session"] for s in scores if s["source"] == sources.OURS] == [name]
    monkeypatch.setattr("sys.argv", ["", "--session", name, "--held-out"])
    assert main() == 2
    assert logging.getLogger("fleetd").isEnabledFor(logging.WARNING)


def test_the_tables_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n")
    given = [result(sources.OURS, 1_000, "one two")]
    for _ in range(2):
        results.write(page, given, "not held out")
        told = page.read_text()
        assert told.startswith("before\n")
        assert told.endswith("\nafter\n")
        assert results.table(given) in told
        assert "1 sessions (not held out)" in told
        assert "old" not in told
