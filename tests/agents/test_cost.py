"""Nothing but briefings, mail lines and conflict lines enters a request of a real CLI."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.added import Recording, compared
from tests.agents.cost import Way, measured, record
from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex, Machine
from tests.agents.packages import NotHere

Recorded = Callable[[type[Machine], Way], Recording]
# make bench-requests compares all five and fails for the same reasons; that takes minutes.
COMPARED: tuple[type[Machine], ...] = (Claude, Codex)
each_cli = pytest.mark.parametrize("cli", COMPARED, ids=lambda kind: kind.harness)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Return a function that plays each session once."""
    kept: dict[tuple[str, Way], Recording] = {}

    def play(kind: type[Machine], way: Way) -> Recording:
        if (kind.harness, way) not in kept:
            try:
                kept[kind.harness, way] = record(kind, way)
            except NotHere as reason:
                pytest.skip(str(reason))
        return kept[kind.harness, way]

    return play


@each_cli
def test_an_ordinary_request_is_the_same_with_hooks_and_without(
    cli: type[Machine], recorded: Recorded
) -> None:
    found = compared(recorded(cli, Way.WITHOUT), recorded(cli, Way.ALONE))

    compaction = [request.kind for request in found].index("compaction")
    assert compaction > 4
    assert not any(request.added for request in found[:compaction])
    later = [set(request.added) for request in found[compaction:]]
    assert {"briefing"} in later
    assert set().union(*later) == {"briefing"}


@each_cli
def test_nothing_but_briefings_mail_lines_and_conflict_lines_enters(
    cli: type[Machine], recorded: Recorded
) -> None:
    found = compared(recorded(cli, Way.WITHOUT), recorded(cli, Way.AMONG_OTHERS))

    kinds = set().union(*(request.added for request in found))
    assert kinds == {"briefing", "mail line", "conflict line"}
    first, *_ = found
    assert not first.added


@each_cli
def test_the_tools_cost_little(cli: type[Machine], recorded: Recorded) -> None:
    first, *_ = recorded(cli, Way.TOOLS).of("turn")

    cost = measured(cli, recorded)

    assert "fleetd remembers for you" in json.dumps(first)
    # Of their 5 KB some CLIs make twice as much, with words of their own for each.
    assert 0 < cost.tools < 12_000


def test_the_words_of_any_other_hook_are_noticed(recorded: Recorded) -> None:
    """A hook of the user's own says what fleetd's must not: what is compared here would tell."""

    def another(_: Desk[Machine]) -> None:
        file = Path(os.environ["HOME"], ".claude", "settings.json")
        settings = json.loads(file.read_text())
        says = {"type": "command", "command": "echo fleetctl context has more"}
        settings["hooks"]["UserPromptSubmit"].append({"hooks": [says]})
        file.write_text(json.dumps(settings))

    without = recorded(Claude, Way.WITHOUT)

    with pytest.raises(AssertionError, match="fleetctl context has more"):
        compared(without, record(Claude, Way.ALONE, another))
