"""What commands print on a terminal: it fits, ids are whole, times are people's."""

import re
import sys
from pathlib import Path

import pytest

from fleetctl.output.text import width
from tests.support.processes import environment
from tests.support.terminal import terminal

LISTS = (
    ("status",),
    ("status", "--verbose"),
    ("mission", "list"),
    ("mission", "show"),
    ("mission", "timeline"),
    ("sortie", "list"),
    ("agent", "list"),
    ("lock", "list"),
    ("mail", "list"),
    ("checkpoints", "list"),
    ("checkpoints", "diff"),
    ("snapshot", "list"),
    ("events",),
    ("hooks", "status"),
    ("daemon", "status"),
    ("doctor",),
    ("config",),
)
LONG = "Everything 漢字 that there is to say 👍 about the customer portal and its authentication"
ID = re.compile(r"\b(?:msn|srt|lck|msg|chk)-[0-9a-f]{8}\b")
CUT_ID = re.compile(r"\b(?:msn|srt|lck|msg|chk)-[0-9a-f]{0,7}(?:…|$)")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:")


@pytest.fixture
def fleet(done, mission, home: Path):
    """Let there be something with long names in every list."""
    done("mission", "create", LONG, "--priority", "critical")
    done("sortie", "create", LONG, "--mission", mission)
    done("agent", "start", "specialist-with-a-rather-long-name", "--mission", mission)
    agent = ("--agent", "specialist-with-a-rather-long-name")
    done("lock", "acquire", f"{'/directory' * 12}/file.py", *agent, "--mission", mission)
    people = [word for n in range(8) for word in ("--to", f"agent-{n}")]
    done("mail", "send", LONG, "--from", "dispatch-1", *people, "--mission", mission)
    done("checkpoint", "--note", LONG)
    sortie = done("sortie", "list", "--json").json[0]["id"]
    done("sortie", "start", sortie, *agent)
    done("sortie", "block", sortie, "--reason", LONG)
    done("snapshot", "record", "--run", "run-1", "--agent", agent[1], "--plan", LONG, "--step", "s")
    return mission


def shown(home: Path, *argv: str, columns: int, rows: int = 120, **more: str) -> list[str]:
    """Return the lines that a command shows in a terminal."""
    env = environment(home) | {"TZ": "UTC", **more}
    command = [sys.executable, "-m", "fleetctl", *argv]
    with terminal(command, env=env, cwd=home / "project", columns=columns, rows=rows) as seen:
        seen.rest()
        return "\n".join(seen.lines()).rstrip().split("\n")


@pytest.mark.parametrize("columns", [60, 80])
def test_no_line_of_any_list_wraps_and_no_id_is_cut(fleet, home: Path, columns):
    for argv in LISTS:
        lines = whole_lines(home, columns, *argv)
        assert max(map(width, lines)) <= columns, (argv, max(lines, key=width))
        text = "\n".join(lines)
        assert not CUT_ID.search(text), argv
        if argv[0] not in ("doctor", "config", "hooks", "daemon"):
            assert not ISO.search(text), argv


def whole_lines(home: Path, columns: int, *argv: str) -> list[str]:
    """Return the lines as they were written, before the terminal could wrap any."""
    env = environment(home) | {"TZ": "UTC", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "fleetctl", *argv]
    with terminal(command, env=env, cwd=home / "project", columns=columns, rows=120) as seen:
        seen.rest()
        written = b"".join(data for _, data in seen.written).decode()
    return written.replace("\r\n", "\n").rstrip("\n").split("\n")


def test_every_list_names_its_ids_however_narrow(fleet, done, home: Path):
    for argv, noun in ((("mission", "list"), "msn"), (("lock", "list"), "lck")):
        ids = {each["id"] for each in done(*argv, "--json").json}
        for columns in (30, 60, 120):
            text = "\n".join(shown(home, *argv, columns=columns))
            assert {found for found in ID.findall(text) if found.startswith(noun)} == ids


def test_exact_is_what_a_pipe_gets(fleet, done, home: Path):
    piped = done("checkpoints", "list").out
    for argv in (("--exact", "checkpoints", "list"), ("checkpoints", "list", "--exact")):
        assert "\n".join(shown(home, *argv, columns=200)) == piped.rstrip("\n")


def test_states_have_colours_unless_nobody_wants_them(fleet, home: Path):
    env = environment(home)
    command = [sys.executable, "-m", "fleetctl", "sortie", "list"]
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with terminal(command, env=env | more, cwd=home / "project") as seen:
            seen.rest()
            written = b"".join(data for _, data in seen.written)
        assert (b"\x1b[33mblocked" in written) is coloured


def test_an_empty_fleet_says_what_to_do_next(daemon, home: Path):
    assert shown(home, "mission", "list", columns=80) == [
        "No missions found.",
        'Create one: fleetctl mission create "Title" --sortie "First piece"',
    ]
    assert "  To begin:" in shown(home, "status", columns=80)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("staus",), "Error: argument COMMAND: there is no 'staus'. Did you mean status?"),
        (
            ("statsu",),
            "Error: argument COMMAND: there is no 'statsu'. Did you mean stats or status?",
        ),
        (("mission", "lst"), "Error: argument COMMAND: there is no 'lst'. Did you mean list?"),
        (("status", "--jsn"), "Error: unrecognized arguments: --jsn. Did you mean --json?"),
    ],
)
def test_who_mistypes_is_told_what_may_have_been_meant(run, home, argv, told):
    result = run(*argv)

    assert (result.status, result.err.splitlines()[0]) == (2, told)


def test_without_a_command_there_is_the_whole_list(run, home):
    result = run()

    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("Error: COMMAND is required: choose one of these.\nusage: ")
    assert "  checkpoint   take, list, compare, prune" in result.err


def test_a_malformed_id_comes_with_the_list_of_those_there_are(run, daemon):
    result = run("mission", "show", "nonsense")

    assert result.status == 2
    assert result.err.endswith("\nHint: fleetctl mission list shows the ids.\n")


def test_long_errors_break_between_words(daemon, home: Path):
    lines = shown(home, "checkpoints", "show", "chk-00000000", columns=60)

    assert lines[0] == "Error: Checkpoint not found: chk-00000000"
    assert lines[1].startswith("Hint: Looked in the database")
    assert all(line.startswith("      ") for line in lines[2:])
