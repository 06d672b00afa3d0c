"""``fleetctl search``: hits with the commands that show them, and nothing a terminal would obey."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.output import console
from tests.support.processes import Daemon, Result

Done = Callable[..., Result]


@pytest.fixture
def mission(daemon: Daemon, done: Done) -> str:
    made = done("mission", "create", "Add login", "--json").json
    done("mission", "start", made["id"])
    return str(made["id"])


def append(done: Done, kind: str, mission: str, **data: str) -> None:
    asked = {"type": kind, "mission_id": mission, "agent_id": "ann", "data": data}
    done("call", "event.append", json.dumps(asked))


def commands_of(told: str) -> list[str]:
    return [line.strip() for line in told.splitlines() if line.startswith("    fleetctl ")]


def test_each_hit_names_a_command_that_shows_it(mission: str, done: Done) -> None:
    append(done, "prompt_submitted", mission, prompt="Draw the login form")
    append(done, "command_finished", mission, command="pytest tests/test_login.py", result="FAIL")
    done("mail", "send", "Fields", "--from", "ann", "--to", "bob", "--body", "The login has three")
    done("note", "decision", "No login form in Flash")
    told = done("search", "login").out
    shown = [done(*shlex.split(each)[1:]).out for each in commands_of(told)]
    wanted = ("No login form in Flash", "The login has three", "test_login.py", "Draw the login")
    assert len(shown) == 5
    for out, text in zip(shown, wanted, strict=False):
        assert text in out, out
    assert "Add login" in shown[-1]
    assert "    Draw the login form\n" in told
    [message] = done("search", "login", "--kind", "mail", "--json").json["hits"]
    assert done("mail", "list", "--pending", "--json").json[0]["id"] == message["id"]


def test_the_next_page_has_a_command(mission: str, done: Done) -> None:
    for number in range(5):
        append(done, "prompt_submitted", mission, prompt=f"it's page {number}")
    told = done("search", "page", "it's", "-n", "2", "--mission", mission, "--since", "1h").out
    more, _, following = told.splitlines()[-1].partition(" more: ")
    assert more == "3"
    seen = []
    while following:
        told = done(*shlex.split(following)[1:]).out
        seen += [
            line.strip()
            for line in told.splitlines()
            if "it's page" in line and "search" not in line
        ]
        _, _, following = told.splitlines()[-1].partition(" more: ")
    assert seen == ["it's page 2", "it's page 1", "it's page 0"]


def test_what_looks_like_an_option_is_found_on_the_next_page(mission: str, done: Done) -> None:
    for number in range(2):
        append(done, "command_finished", mission, command=f"vi a--force-{number}.py", result="ok")
    for asked in (["--path=--force"], ["--path=-for", "--", "--force-0"], ["--", "--force*"]):
        told = done("search", "-n", "1", *asked).out
        _, _, following = told.splitlines()[-1].partition(" more: ")
        if "--force-0" not in asked:
            assert "a--force-1" in told
            told = done(*shlex.split(following)[1:]).out
        assert "a--force-0" in told


def test_what_others_wrote_moves_no_cursor(
    mission: str, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07 walrus \u202e\r\x9b31m"
    append(done, "prompt_submitted", mission, prompt=hostile)
    monkeypatch.setattr(console, "human_readable", lambda: True)
    monkeypatch.setattr(
        console, "styled", lambda text, style, _=None: f"<{text}>" if style else text
    )
    told = done("search", "walrus").out
    assert "<walrus>" in told
    assert not set(told) & {"\x1b", "\x07", "\r", "\x9b", "\u202e"}


def test_bad_input_is_named(mission: str, run: Done, home: Path) -> None:
    assert run("search", "x", "--mission", "msn-00000000").status == 4
    assert run("search", "x", "--agent", "nobody").status == 4
    refused = run("search", "--raw", "login AND (form")
    assert refused.status == 2
    assert "at character 16: a closing parenthesis is missing for the one at character 11" in (
        refused.err
    )
    assert run("search").status == 2
    assert run("search", "--path", "py").status == 2
    assert run("search", "x", "--kind", "song").status == 2
    assert run("search", "walrus").out == "Nothing found.\n"


def test_a_place_beyond_the_log_is_refused(mission: str, run: Done) -> None:
    refused = run("search", "--before", "9" * 20, "fix")

    assert refused.status == 2
    assert "before" in refused.err
