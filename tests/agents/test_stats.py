"""What the real CLIs do after a compaction is counted, and a mission can do without briefings."""

from collections.abc import Callable
from typing import Any

from tests.agents.conftest import Desk
from tests.agents.machines import Claude, Codex, Gemini, M
from tests.agents.project import PATCH, PROMPT
from tests.agents.script import Call, calls, says
from tests.agents.test_claude import bash
from tests.agents.test_codex import shell as codex_shell
from tests.agents.test_gemini import shell as gemini_shell
from tests.agents.test_gemini import writes
from tests.agents.wording import briefings
from tests.support.processes import fleetctl

LISTED = "cat notes.txt"


def newest() -> dict[str, Any]:
    told = fleetctl("stats", "recovery", "--json").json
    found: dict[str, Any] = told["compactions"][0]
    return found


def _is_counted(
    desk: Desk[M], run: Callable[[str], Call], edit: Call, read: Call | None = None
) -> None:
    """Compact a session twice, first with a briefing and then without."""
    mission = fleetctl("mission", "create", PROMPT, "--json").json["id"]
    assert fleetctl("mission", "start", mission).status == 0
    looks = [calls(run(LISTED)), *([calls(read)] if read else [])]
    desk.script.plays([*looks, calls(run("true")), says("Looked.")])
    assert desk.cli.prompt(PROMPT).status == 0
    desk.script.plays([calls(run("true"), full=True), *looks, calls(edit), says("Done.")])
    assert desk.cli.go_on("Change it").status == 0

    (after,) = desk.script.after_compactions()
    assert briefings(after.text) == 1
    given = newest()
    assert (given["briefing"], given["mission_id"]) == ("given", mission), desk.memory.log()
    assert (given["commands_again"], given["files_again"]) == (1, len(looks) - 1)
    assert given["calls_until_edit"] == len(looks) + 1

    assert fleetctl("mission", "update", mission, "--briefing", "off").status == 0
    desk.script.plays([calls(run("true"), full=True), *looks, says("Nothing left.")])
    assert desk.cli.go_on("Look again").status == 0

    assert briefings(desk.script.after_compactions()[-1].text) == 0
    left_out = newest()
    assert left_out["seq"] > given["seq"]
    assert (left_out["briefing"], left_out["calls_until_edit"]) == ("off", None)
    assert (left_out["commands_again"], left_out["files_again"]) == (1, len(looks) - 1)


def test_claude_is_counted(claude: Desk[Claude]) -> None:
    file = str(claude.project / "hello.py")
    edit = Call("Write", {"file_path": str(claude.project / "new.py"), "content": "1"})
    _is_counted(claude, bash, edit, Call("Read", {"file_path": file}))


def test_codex_is_counted(codex: Desk[Codex]) -> None:
    _is_counted(codex, codex_shell, Call("apply_patch", PATCH))


def test_gemini_is_counted(gemini: Desk[Gemini]) -> None:
    file = str(gemini.project / "hello.py")
    edit = writes("new.py", "1")
    _is_counted(gemini, gemini_shell, edit, Call("read_file", {"file_path": file}))
