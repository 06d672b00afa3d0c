"""``fleetctl report``: a mission or an agent as Markdown, HTML or JSON."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_attention import hook
from tests.cli.test_usage import now_line
from tests.cli.test_usage import session as begin_session
from tests.support.processes import Daemon, Result

Run = Callable[..., Result]
BASH = {"tool_name": "Bash", "tool_use_id": "call-1"}
HOSTILE = "Add a login\n```\n<script>alert(1)</script>\n![x](http://evil.example/x.png)"


@pytest.fixture
def session(daemon: Daemon, done: Run, home: Path) -> str:
    """Return the agent of a session that was asked for something, ran a test, and answered."""
    hook(done, "s-1", "UserPromptSubmit", home, prompt=HOSTILE)
    command = {"tool_input": {"command": "pytest -q"}}
    hook(done, "s-1", "PreToolUse", home, **BASH, **command)
    answer = {"tool_response": {"stdout": "1 passed", "stderr": "", "interrupted": False}}
    hook(done, "s-1", "PostToolUse", home, **BASH, **command, **answer)
    edit = {"file_path": str(home / "form.py")}
    hook(done, "s-1", "PostToolUse", home, tool_name="Edit", tool_input=edit, tool_use_id="call-2")
    hook(done, "s-1", "Stop", home, last_assistant_message="It is done")
    return "claude-s-1"


def test_an_agent_is_reported_as_markdown(session: str, done: Run, home: Path) -> None:
    out = done("report", session).out
    assert out.startswith(f"# Report of the agent `{session}`\n")
    assert "````\nAdd a login\n```\n<script>alert(1)</script>\n" in out
    assert "- PASS: `pytest -q` (1 run: 1 passed)" in out
    assert f"- `{home}/form.py`, 1 change, by `{session}`" in out
    assert "It is done" in out
    assert out == done("report", session, "--md").out


def test_a_mission_is_reported_as_a_page_in_a_file_of_its_owner(
    session: str, done: Run, home: Path
) -> None:
    [mission] = done("mission", "list", "--json").json
    file = home / "report.html"
    told = done("report", mission["id"][:10], "--html", "--out", str(file))
    assert told.out == f"Wrote {file}.\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "<svg " in text
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert [path.name for path in home.glob(".report*")] == []
    assert done("report", mission["id"], "--html").out.count("<svg") == 1


def test_json_has_what_the_daemon_has(session: str, done: Run) -> None:
    [mission] = done("mission", "list", "--json").json
    found = done("report", mission["id"], "--json").json
    assert found["mission"]["id"] == mission["id"]
    assert [each["command"] for each in found["commands"]] == ["pytest -q"]
    assert "usage" in found


def test_tokens_are_those_of_the_transcripts(daemon: Daemon, done: Run, home: Path) -> None:
    begin_session(done, home, "s-1", now_line(1), now_line(2))
    [mission] = done("mission", "list", "--json").json
    figures = ": 203 input, 20 output, 2,000 read from the cache, 100 written to it, 0 reasoning; "
    assert f"- `claude-s-1`{figures}<$0.01\n" in done("report", mission["id"]).out
    assert f"- `claude-sonnet-4-5`{figures}<$0.01\n" in done("report", "claude-s-1").out
    [row] = done("report", mission["id"], "--json").json["usage"]
    assert (row["name"], row["input"], row["cache_read"]) == ("claude-s-1", 203, 2_000)


def test_without_an_argument_it_is_the_mission_of_this_directory(mission: str, done: Run) -> None:
    out = done("report").out
    assert out.startswith("# Report of the mission `Test`\n")
    assert "- pending: `One`" in out
    assert done("report", mission).out.splitlines()[1:] == out.splitlines()[1:]


@pytest.mark.parametrize("form", ["--md", "--html", "--json"])
def test_prompts_can_be_left_out_with_what_was_taken_from_them(
    session: str, done: Run, form: str
) -> None:
    [mission] = done("mission", "list", "--json").json
    assert mission["title"] == "Add a login"
    for subject in (session, mission["id"]):
        out = done("report", subject, form, "--without-prompts").out
        assert "Add a login" not in out
        assert "It is done" not in out
        assert "pytest -q" in out


def test_who_is_unknown_is_not_found(daemon: Daemon, run: Run) -> None:
    for subject in ("nobody", "msn-00000000", "no such/name", "msn-1"):
        result = run("report", subject)
        assert result.status == 4, subject
        assert "No agent and no mission has this name" in result.err


def test_two_forms_and_files_that_cannot_be_written_are_refused(
    mission: str, run: Run, home: Path
) -> None:
    assert run("report", "--md", "--html").status == 2
    assert run("report", "--html", "--json").status == 2
    assert run("report", "--out", "").status == 2
    result = run("report", "--out", str(home / "none" / "report.md"))
    assert result.status == 1
    assert "cannot be written" in result.err


def test_a_file_that_was_there_is_replaced_only_by_a_whole_one(
    mission: str, done: Run, home: Path
) -> None:
    file, link = home / "a.md", home / "b.md"
    file.write_text("old")
    link.symlink_to(file)
    done("report", "--out", str(link))
    assert link.is_symlink()
    assert file.read_text().startswith("# Report of the mission `Test`")
    assert done("report", "--out", "/dev/null").out == "Wrote /dev/null.\n"
    assert not Path("/dev/null").is_file()
