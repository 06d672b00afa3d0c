"""Notes in the real CLIs: one of them stands in the first request after a compaction, once."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from tests.agents.conftest import Desk
from tests.agents.machines import Claude, Codex, Gemini, M
from tests.agents.script import Call, calls, says
from tests.agents.test_claude import bash
from tests.agents.test_codex import shell as codex_shell
from tests.agents.test_gemini import shell as gemini_shell
from tests.agents.wording import briefings
from tests.support.erasure import places_of
from tests.support.processes import fleetctl

IDEA = "a-cache-in-redis-was-tried"
NOTED, OTHER = "first", "second"
PROMPT, LAST = "Make it faster", "Try another way"


def _is_noted_and_forgotten(desk: Desk[M], run: Callable[[str], Call]) -> None:
    """Have one agent note what is ruled out, and look at what it and another one are sent."""
    made = fleetctl("mission", "create", "Be fast", "--json")
    mission = made.json["id"]
    assert fleetctl("mission", "start", mission).status == 0
    # The text itself is no part of the command, which a briefing quotes.
    words = [sys.executable, "-m", "fleetctl", "note", "ruled-out", IDEA]
    Path("note.sh").write_text(shlex.join(words))
    desk.script.plays([calls(run("sh note.sh")), says("Noted.")])
    first = desk.cli.prompt(PROMPT, FLEET_AGENT_ID=NOTED)
    assert first.status == 0, first.err
    desk.script.plays([calls(run("true"), full=True), calls(run("false")), says("Tried.")])
    again = desk.cli.go_on(LAST, FLEET_AGENT_ID=NOTED)
    assert again.status == 0, again.err

    (after,) = desk.script.after_compactions()
    assert briefings(after.text) == 1, desk.memory.log()
    assert after.text.count(IDEA) == 1
    assert f"- Ruled out by you: “{IDEA}”" in after.text
    assert LAST in after.text
    [note] = fleetctl("note", "list", "--mission", mission, "--json").json
    assert (note["kind"], note["origin"], note["agent_id"]) == ("ruled-out", "agent", NOTED)

    asked = len(desk.script.asked)
    desk.script.plays([calls(run("true")), says("Looked.")])
    assert desk.cli.prompt("Look at it", FLEET_AGENT_ID=OTHER).status == 0
    desk.script.plays([calls(run("true"), full=True), calls(run("false")), says("Tried.")])
    assert desk.cli.go_on(LAST, FLEET_AGENT_ID=OTHER).status == 0
    theirs = [each for each in desk.script.after_compactions() if each in desk.script.asked[asked:]]
    assert [each.text.count(f"- Ruled out by {NOTED}: “{IDEA}”") for each in theirs] == [1]

    kept = [Path(os.environ[name]) for name in ("FLEET_DB_PATH", "FLIGHTLINE_DIR")]
    roots = [kept[0].parent, kept[1]]
    assert [bool(places_of(root, IDEA)) for root in roots] == [True, True]
    assert fleetctl("forget", "mission", mission, "--yes").status == 0
    assert [places_of(root, IDEA) for root in roots] == [[], []]


def test_claude_is_reminded_of_what_was_ruled_out(claude: Desk[Claude]) -> None:
    _is_noted_and_forgotten(claude, bash)


def test_codex_is_reminded_of_what_was_ruled_out(codex: Desk[Codex]) -> None:
    _is_noted_and_forgotten(codex, codex_shell)


def test_gemini_is_reminded_of_what_was_ruled_out(gemini: Desk[Gemini]) -> None:
    _is_noted_and_forgotten(gemini, gemini_shell)
