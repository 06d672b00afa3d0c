"""The live trial of briefings with the real CLIs, played against a scripted model."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet import ROOT
from tests.agents import anthropic
from tests.agents.packages import Package
from tests.agents.running import outside
from tests.agents.script import Call, Script, calls, says
from tests.agents.server import serving
from tests.agents.wording import HEADING

LIMIT_S = 120
SECRET = "sk-ant-nobody-may-see-this"


def trial(package: Package, logs: Path, *argv: str, **variables: str) -> dict[str, Any]:
    """Run a trial of one run for each arm, and return its document."""
    how = ["--cli", package.name, "--program", str(package.program), "--runs", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.briefing", *how, "--logs", str(logs), *argv],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def verdicts(document: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Return how each arm ended, and how many briefings it got."""
    return {each["arm"]: (each["verdict"], each["briefings"]) for each in document["outcomes"]}


def requests(logs: Path, task: str, arm: str) -> list[str]:
    """Return what the model was asked, each with its kind in front, but side requests."""
    lines = (logs / f"{task}-{arm}-01" / "requests.log").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("side ")]


def briefed(asked: list[str]) -> list[tuple[str, int]]:
    """Return the kind of each request, and how many briefings it holds."""
    return [(line.partition(" ")[0], line.count(HEADING)) for line in asked]


def test_claude_solves_a_task_after_a_compaction_with_its_briefing_only(
    home: Path, claude_package: Package
) -> None:
    logs = home / "logs"

    document = trial(claude_package, logs, "--task", "export-rulings", "--scripted")

    assert verdicts(document) == {"on": ("passed", 1), "off": ("failed", 0)}
    before = [("turn", 0)] * 4 + [("compaction", 0)]
    off, on = (briefed(requests(logs, "export-rulings", arm)) for arm in ("off", "on"))
    assert off == [*before, ("turn", 0), ("turn", 0)]
    assert on == [*before, ("turn", 1), ("turn", 1)]
    assert claude_package.version in document["version"]
    assert [*home.joinpath("home").iterdir()] == []


def test_codex_keeps_the_words_of_its_user_but_not_what_it_found_out(
    home: Path, codex_package: Package
) -> None:
    both = ("--task", "export-rulings", "--task", "import-ruled-out")
    logs = home / "logs"

    document = trial(codex_package, logs, *both, "--scripted")

    off = {each["task"]: each for each in document["outcomes"] if each["arm"] == "off"}
    assert off["export-rulings"]["verdict"] == "passed"
    assert off["import-ruled-out"]["verdict"] == "failed"
    for task in off:
        kinds = briefed(requests(logs, task, "off"))
        assert kinds == [("turn", 0)] * 4 + [("compaction", 0), ("turn", 0), ("turn", 0)]
        told = briefed(requests(logs, task, "on"))
        assert told == [*kinds[:5], ("turn", 1), ("turn", 1)]


def test_a_key_reaches_the_cli_and_no_log(
    home: Path, claude_package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    logs = home / "logs"
    script = Script()
    env = calls(Call("Bash", {"command": "env", "description": "Look"}))
    script.plays([env, says("One."), env, says("Two."), says("Three.")])

    with outside() as proxy, serving(anthropic, script) as url:
        document = trial(
            claude_package,
            logs,
            *("--task", "export-rulings", "--arm", "on"),
            ANTHROPIC_API_KEY=SECRET,
            ANTHROPIC_BASE_URL=url,
            HTTPS_PROXY=proxy.url,
            HTTP_PROXY=proxy.url,
            NO_PROXY="127.0.0.1,localhost",
        )

    assert verdicts(document) == {"on": ("failed", 1)}
    assert document["outcomes"][0]["cost_usd"] > 0
    printed = script.asked_in("turn")[1].text
    assert SECRET in printed
    assert "HOME=/" in printed
    assert str(home) not in printed
    kept = [file for file in logs.rglob("*") if file.is_file()]
    assert len(kept) > 8
    assert not [file for file in kept if SECRET in file.read_text("utf-8", "replace")]
