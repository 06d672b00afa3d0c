"""``status``, ``context``, ``config`` and ``call``: looking without touching."""

import io
import json
import re
import subprocess
import sys
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetctl.output import console


def test_status_of_an_idle_daemon(done, daemon):
    lines = done("status").out.splitlines()

    assert lines[0].startswith("fleetd ")
    assert lines[1:7] == ["", "Agents", "  none", "", "Missions in progress", "  none"]
    assert "Waiting for recovery" not in lines
    assert "Store" not in lines
    verbose = done("status", "-v").out.splitlines()
    assert any(line.startswith("  0 missions, 0 sorties, ") for line in verbose)


def test_status_lists_agents_first_those_that_wait_for_a_person(done, mission):
    done("agent", "start", "ann", "--mission", mission)
    hook(done, "UserPromptSubmit", prompt="Login")
    make = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "call-1"}
    hook(done, "PreToolUse", **make)
    hook(done, "PermissionRequest", **make)
    for number in range(12):
        done("agent", "start", f"bob-{number}")
    done("agent", "start", "gone-1")
    done("agent", "deregister", "gone-1")

    lines = done("status").out.splitlines()
    agents = lines[lines.index("Agents") + 1 : lines.index("Missions in progress") - 1]
    assert agents[0].split()[:3] == ["claude-s-1", "needs", "permission"]
    assert agents[0].endswith("Bash: make")
    assert len(agents) == 13
    assert agents[-1] == "  and 2 more: fleetctl attention, fleetctl agent list"
    assert "gone-1" not in "\n".join(agents)


def test_status_shows_progress_and_silence(done, mission):
    row = next(line for line in done("status").out.splitlines() if mission in line)

    assert row.split()[1:4] == ["0%", "(0/2)", "active"]
    assert row.endswith("Test")


def test_a_quiet_mission_is_silent_only_where_the_daemon_says_so():
    assert console.last_activity(59_000, silent=True) == "active"
    assert console.last_activity(120_000, silent=False) == "last activity 2m 0s ago"
    assert console.last_activity(420_000, silent=True) == "silent 7m 0s"


def hook(done, event, **more):
    """Have a hook of Claude Code tell something."""
    payload = {"hook_event_name": event, "session_id": "s-1"} | more
    told = {"delivery_id": f"d-{event}", "harness": "claude", "payload": json.dumps(payload)}
    done("call", "hook.deliver", json.dumps(told))


CLOSED = "closed with its session, 2 of 4 sorties open; resumes with it"


def test_a_closed_terminal_closes_the_mission_with_its_session_and_calls_nothing_off(
    done, run, daemon
):
    hook(done, "UserPromptSubmit", prompt="Login")
    words = ("completed", "completed", "in_progress", "pending")
    todos = [{"content": f"Step {at}", "status": word} for at, word in enumerate(words)]
    hook(done, "PostToolUse", tool_name="TodoWrite", tool_input={"todos": todos})
    hook(done, "SessionEnd", reason="other")

    (mission,) = done("mission", "list", "--json").json
    told = {name: mission[name] for name in ("status", "closed_reason", "origin")}
    assert told == {"status": "cancelled", "closed_reason": "session", "origin": "session"}
    assert f"Status: {CLOSED}" in done("mission", "show", mission["id"]).out
    (row,) = [each for each in done("mission", "list").out.splitlines() if "Login (auto)" in each]
    assert row.split()[1] == "closed"
    told = done("mission", "timeline", mission["id"]).out
    assert "was closed with its session (other), 2 of 4 sorties open; resumes with it" in told
    assert "called off" not in told
    refused = run("mission", "complete", mission["id"]).err
    assert "is already closed with its session (since" in refused

    hook(done, "SessionStart", source="resume")
    (mission,) = done("mission", "list", "--json").json
    assert (mission["status"], mission["closed_reason"]) == ("in_progress", None)
    done("mission", "cancel", mission["id"], "--reason", "enough")
    assert "Status: cancelled\n" in done("mission", "show", mission["id"]).out
    assert "The mission was called off: enough" in done("mission", "timeline", mission["id"]).out


def test_missions_are_listed_by_every_status_that_the_list_shows(done, run, mission):
    hook(done, "UserPromptSubmit", prompt="Login")
    todos = [{"content": "Form", "status": "in_progress"}]
    hook(done, "PostToolUse", tool_name="TodoWrite", tool_input={"todos": todos})
    (agent,) = done("agent", "list", "--json").json
    hook(done, "SessionEnd", reason="other")
    closed = agent["mission_id"]
    off = done("mission", "create", "Off").id("msn")
    done("mission", "cancel", off, "--reason", "enough")

    def listed(status):
        rows = done("mission", "list", "--status", status, "--json").json
        return {each["id"] for each in rows}

    assert listed("closed") == {closed}
    assert listed("merged") == set()
    assert listed("cancelled") == {closed, off}
    assert listed("in_progress") == {mission}
    refused = run("mission", "list", "--status", "gone")
    assert (refused.status, "closed" in refused.err) == (2, True)


def test_an_agent_that_waits_for_a_permission_is_shown_wherever_its_state_stands(done, daemon):
    hook(done, "UserPromptSubmit", prompt="Login")
    make = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "call-1"}
    hook(done, "PreToolUse", **make)
    assert "permission" not in done("status").out + done("agent", "list").out
    hook(done, "PermissionRequest", **make)

    assert "1 agent, 1 needs permission" in done("status").out
    assert "waiting: permission  claude" in done("agent", "list").out
    shown = done("agent", "show", "claude-s-1").out
    assert "Status: waiting: permission\n" in shown
    (agent,) = done("agent", "list", "--json").json
    assert agent["needs"] == "permission"
    assert f"Waits since: {agent['needs_since']}\n" in shown
    hook(done, "PostToolUse", **make)
    assert "permission" not in done("status").out + done("agent", "list").out


def test_missions_that_were_made_for_a_session_say_so(done, daemon):
    hook(done, "UserPromptSubmit", prompt="Login")
    (made,) = done("mission", "list", "--json").json
    mission = made["id"]

    assert (made["origin"], made["closed_reason"], made["metadata"]) == ("session", None, {})
    assert done("status").out.count("Login (auto)") == 1
    assert "Login (auto)" in done("mission", "list").out
    assert "Title: Login (auto)" in done("mission", "show", mission).out
    assert done("status", "--json").json["missions"][0]["automatic"]
    done("mission", "update", mission, "--title", "Login for all")
    assert "(auto)" not in done("status").out


def test_a_clients_metadata_automatic_does_not_show_as_auto(done, daemon):
    made = {"title": "Login", "metadata": {"automatic": True}}
    mission = done("call", "mission.create", json.dumps(made)).json["id"]
    done("mission", "start", mission)

    assert "(auto)" not in done("status").out + done("mission", "list").out


def test_in_an_agent_s_shell_the_current_mission_is_the_agent_s(done, mission, monkeypatch):
    done("agent", "start", "spec-1", "--mission", mission)
    other = done("mission", "create", "Other").id("msn")
    done("mission", "start", other)
    assert done("mission", "current", "--json").json["id"] == other

    monkeypatch.setenv("FLEET_AGENT_ID", "spec-1")
    assert done("mission", "current", "--json").json["id"] == mission

    monkeypatch.setenv("FLEET_AGENT_ID", "no name\n")
    assert done("mission", "current", "--json").json["id"] == other


COMMANDS = [
    ("checkpoint", "--json"),
    ("context", "--json"),
    ("mission", "timeline", "--json"),
    ("mission", "current", "--json"),
    ("checkpoints", "list", "--json"),
    ("sortie", "list", "--json"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_guesses_a_mission_takes_the_only_one_or_lists_those_elsewhere(
    run, done, mission, home, monkeypatch, command
):
    (home / "other").mkdir()
    monkeypatch.chdir(home / "other")
    done(*command)  # the only one in progress

    (home / "third").mkdir()
    second = done("mission", "create", "Two", "--project-dir", str(home / "third")).id("msn")
    done("mission", "start", second)
    result = run(*command)

    assert result.status == 2
    found = json.loads(result.err)["error"]["candidates"]
    assert [(each["id"], each["project_dir"]) for each in found] == [
        (second, str(home / "third")),
        (mission, str(home / "project")),
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_guesses_a_mission_lists_that_of_a_session_elsewhere(
    run, done, daemon, home, monkeypatch, command
):
    for name in ("shop", "other"):
        (home / name).mkdir()
    hook(done, "UserPromptSubmit", prompt="Login", cwd=str(home / "shop"))
    (mission,) = done("mission", "list", "--json").json
    monkeypatch.chdir(home / "other")
    result = run(*command)

    assert result.status == 2
    (found,) = json.loads(result.err)["error"]["candidates"]
    assert (found["id"], found["project_dir"]) == (mission["id"], str(home / "shop"))
    monkeypatch.chdir(home / "shop")
    assert mission["id"] in done("mission", "current").out


def test_without_any_mission_the_commands_that_guess_one_say_so(run, daemon):
    for command in COMMANDS:
        result = run(*command)
        assert (result.status, "No active mission found." in result.err) == (1, True), command


def test_context_with_an_agent_prints_the_agent_s_mission(done, mission, home, monkeypatch):
    done("agent", "start", "spec-1", "--mission", mission)
    (home / "other").mkdir()
    monkeypatch.chdir(home / "other")
    here = done("mission", "create", "Here").id("msn")
    done("mission", "start", here)

    assert "**Mission**: Here" in done("context").out
    assert "**Mission**: Test" in done("context", "--agent", "spec-1").out
    named = done("context", "--agent", "spec-1", "--mission", here).out
    assert "**Mission**: Here" in named

    monkeypatch.setenv("FLEET_AGENT_ID", "spec-1")
    assert "**Mission**: Test" in done("context").out


def test_context_with_an_agent_that_nobody_knows_says_so(done, mission):
    done("agent", "start", "spec-1", "--mission", mission)
    done("sortie", "create", "Ship", "--mission", mission, "--assign-to", "spec-2")
    told = done("context", "--agent", "typo")
    assert "**Mission**: Test" in told.out
    assert f"mission {mission} knows no agent typo: briefing for the whole mission" in told.err
    for known in ("spec-1", "spec-2"):
        assert done("context", "--agent", known).err == ""


def test_status_as_json(done, mission):
    status = done("status", "--json").json

    assert [each["mission_id"] for each in status["missions"]] == [mission]
    assert status["counts"]["sorties"] == 2
    assert status["recoveries"] == []


def test_status_shows_who_waits_for_recovery(home, monkeypatch, daemon, done):
    daemon.stop()
    monkeypatch.setenv("FLEET_ACTIVITY_THRESHOLD_MS", "1")
    daemon.start()
    mission = done("mission", "create", "Silent").id("msn")
    done("mission", "start")
    done("checkpoint")

    out = done("status").out

    assert "\nWaiting for recovery\n" in out
    assert f"    fleetctl resume --mission {mission}\n" in out


def test_status_lists_a_lost_agent_with_open_work_at_once(done, mission):
    process = subprocess.Popen(["sleep", "600"])
    sortie = done("sortie", "list", "--json").json[0]["id"]
    done("agent", "start", "spec-1", "--mission", mission, "--pid", str(process.pid))
    done("sortie", "start", sortie, "--agent", "spec-1")
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while "agent_lost: spec-1" not in (out := done("status").out):
        assert time.monotonic() < deadline, out

    command = f"fleetctl resume --mission {mission} --agent NEW --take-over-from spec-1"
    assert out.count(f"    {command}\n    NEW: the agent that continues the work; ") == 1
    (lost,) = done("agent", "list", "--json").json
    gone = f"process {process.pid} is gone"
    assert (lost["needs"], lost["needs_text"]) == ("lost", gone)
    head, why, way, new = done("attention").out.splitlines()
    assert head.startswith(f"spec-1  lost  {lost['needs_since']}")
    assert (why, way) == (f"  {gone}", f"  {command}")
    assert new.startswith("  NEW: the agent that continues the work; ")
    shown = done("agent", "show", "spec-1").out
    assert f"Status: lost since {lost['needs_since']} ({gone})\n" in shown
    assert "Waits" not in shown
    (row,) = [line for line in done("agent", "list").out.splitlines() if "spec-1" in line]
    assert "  lost  " in row
    assert "lost: lost" not in row
    (each,) = done("status", "--json").json["candidates"]
    assert (each["mission_id"], each["reason"]) == (mission, "agent_lost")
    assert each["inactivity_duration_ms"] < 60_000
    assert done("call", "recovery.detect").json["candidates"] == []
    followed = done(*command.replace("NEW", "spec-2").split()[1:], "--yes").out
    assert "Recovery complete:\n" in followed
    assert [each["id"] for each in done("sortie", "list", "--agent", "spec-2", "--json").json] == [
        sortie
    ]
    assert "Waiting for recovery" not in done("status").out


def test_status_shows_recoveries_that_were_not_heard_from(done, mission):
    done("checkpoint")
    done("resume", "--yes", "--agent", "spec-1")

    out = done("status").out

    assert "\nRecoveries under way\n" in out
    (row,) = [line.split(maxsplit=4) for line in out.splitlines() if line.startswith("  rcv-")]
    assert row[1:] == [mission, "briefed", "spec-1", "briefed, not active again yet"]


def test_context_prints_the_briefing_and_changes_nothing(done, mission):
    before = done("events", "--json").json

    out = done("context").out

    assert out.startswith("## Recovery Context\n")
    assert "**Mission**: Test" in out
    assert done("events", "--json").json == before


def test_context_as_json_from_a_checkpoint_for_an_agent(done, mission):
    checkpoint = done("checkpoint").id("chk")

    briefing = done(
        "context", "--checkpoint", checkpoint, "--agent", "spec-1", "--max-chars", "2000", "--json"
    ).json

    assert briefing["checkpoint_id"] == checkpoint
    assert len(briefing["prompt"]) <= 2_000


def test_config_lists_values_and_origins(done, daemon):
    result = done("config")

    rows = [line.split(maxsplit=2) for line in result.out.splitlines()]
    assert rows[0] == ["SETTING", "VALUE", "ORIGIN"]
    assert ["detection.threshold_ms", "300000", "default"] in rows
    assert ["paths.socket", str(daemon.socket), "environment FLEET_SOCKET"] in rows
    assert result.err == ""


def test_config_warns_where_the_daemon_differs(done, daemon, monkeypatch):
    monkeypatch.setenv("FLEET_ACTIVITY_THRESHOLD_MS", "1234")

    text = done("config")
    assert text.err.startswith("Warning: detection.threshold_ms is 1234 here and 300000 in the")
    document = done("config", "--json").json
    assert [each["key"] for each in document["differences"]] == ["detection.threshold_ms"]
    assert document["daemon"] is not None


def test_config_says_what_is_not_set_here(done, daemon, home):
    (home / "config" / "fleet").mkdir()
    (home / "config" / "fleet" / "config.toml").write_text('store = "postgresql://h/fleet"\n')
    told = done("config").err
    assert "store is postgresql://h/fleet here and not set in the daemon (default)" in told


def test_config_names_its_file_also_where_there_is_none(done, home):
    file = home / "config" / "fleet" / "config.toml"
    assert done("config").out.endswith(f"\nFile: {file} (not there yet)\n")
    assert done("config", "--json").json["file"] == str(file)
    file.parent.mkdir()
    file.write_text("")
    assert done("config").out.endswith(f"\nFile: {file}\n")


def test_config_without_a_daemon(done, home):
    result = done("config")

    assert "detection.threshold_ms" in result.out
    assert "fleetd is not running" in result.err
    assert done("config", "--json").json["daemon"] is None


def test_config_with_a_wrong_value_names_it(run, home, monkeypatch):
    monkeypatch.setenv("FLEET_LOG_LEVEL", "loud")

    result = run("config")

    assert result.status == 1
    assert result.err.startswith("Error: Setting log_level is 'LOUD'")


def test_call_prints_the_result(done, daemon):
    assert done("call", "system.hello").json["name"] == "fleetd"


def test_call_takes_objects_arrays_and_stdin(done, daemon, monkeypatch):
    by_name = done("call", "mission.create", '{"title": "Named"}').json
    by_position = done("call", "mission.get", json.dumps([by_name["id"]])).json
    assert by_position["title"] == "Named"

    monkeypatch.setattr(sys, "stdin", io.StringIO('{"title": "Piped"}'))
    assert done("call", "mission.create", "-").json["title"] == "Piped"


@pytest.mark.parametrize("params", ["{", "3", '"text"'])
def test_call_refuses_what_is_no_parameters(run, home, params):
    result = run("call", "mission.list", params)

    assert result.status == 2
    assert result.err.startswith("Error: argument JSON: ")


@pytest.mark.parametrize(
    ("method", "params", "kind"),
    [
        ("mission.nope", "{}", "method_not_found"),
        ("mission.get", '{"mission_id": 3}', "invalid_params"),
    ],
)
def test_call_passes_the_daemons_refusal_on(run, daemon, method, params, kind):
    result = run("call", method, params, "--json")

    assert result.status == 2
    assert result.out == ""
    assert json.loads(result.err)["error"]["kind"] == kind


def test_status_says_how_busy_the_daemon_is_when_asked(done, mission):
    assert "COMMIT" not in done("status").out

    lines = done("status", "--verbose").out.splitlines()

    work = lines[lines.index("Work since the start") :]
    # The daemon may still be closing the connection that created the mission.
    assert any(re.match(r"  connections: \d+ of 256, ", line) for line in work)
    assert any(line.startswith("  writer: 0 requests wait, ") for line in work)
    assert any(line.split()[:2] == ["mission.create", "1"] for line in work)
    header = next(line for line in work if line.startswith("  MS "))
    table = work[work.index(header) :]
    assert header.split() == ["MS", "CALLS", "P50", "P95", "MAX"]
    assert max(map(len, table)) <= 80
    json_ = done("status", "--json").json
    assert {"latencies", "errors", "writer", "connections"} <= json_.keys()


def test_metrics_are_what_prometheus_reads(done, daemon):
    out = done("metrics").out

    names = {family.name for family in text_string_to_metric_families(out)}
    assert {"fleetd_build_info", "fleetd_request_duration_seconds"} <= names
    assert done("metrics", "--json").json.keys() == {"text"}


def test_metrics_go_to_a_file_whole_or_not_at_all(done, run, daemon, home, monkeypatch):
    target = home / "textfile" / "fleetd.prom"
    refused = run("metrics", "--output", str(target))
    assert (refused.status, refused.out) == (1, "")
    assert f"Error: {target} cannot be written: No such file or directory." in refused.err

    target.parent.mkdir()
    assert done("metrics", "--output", str(target)).out == ""
    first = target.read_text()
    assert first.startswith("# HELP fleetd_")
    assert first.endswith("\n")
    assert done("metrics", "--output", str(target), "--json").json == {"path": str(target)}

    def full(self, *_):
        raise OSError(28, "No space left on device")

    before = target.read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr(type(target), "replace", full)
        assert run("metrics", "--output", str(target)).status == 1
    assert run("metrics", "--output", str(target.parent)).status == 1
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]


def test_without_a_daemon_the_file_of_metrics_stays(run, home):
    target = home / "fleetd.prom"
    target.write_text("old")

    assert run("metrics", "--output", str(target)).status == 1
    assert target.read_text() == "old"
