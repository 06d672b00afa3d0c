"""Tokens of real sessions: equal to what ccusage counts in the same files, day by day."""

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.agents import packages
from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex, Gemini, OpenCode
from tests.agents.packages import NotHere, Package, fetched
from tests.agents.script import Call, calls, says
from tests.agents.test_claude import bash
from tests.agents.test_codex import shell as codex_shell
from tests.agents.test_gemini import shell as gemini_shell
from tests.agents.test_opencode import shell as opencode_shell
from tests.support.processes import fleetctl

INPUT, OUTPUT = 2_000, 20
Days = dict[str, tuple[int, int, int, int]]


def ccusage(package: Package) -> Days:
    """Return input, output, cache read and cache write of each day as ccusage counts them."""
    try:
        fetched(package)
    except NotHere as reason:
        pytest.skip(str(reason))
    said = subprocess.run(
        [*package.argv, "daily", "--json", "--offline", "--timezone", "UTC"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=dict(os.environ),
    )
    return {date(day["date"]): figures(day) for day in json.loads(said.stdout)["daily"]}


def date(day: str) -> str:
    """Return a day in ISO 8601: of Codex it is told as people write it."""
    if day[:1].isdigit():
        return day
    return datetime.strptime(day, "%b %d, %Y").date().isoformat()


def figures(day: dict[str, Any]) -> tuple[int, int, int, int]:
    if "cachedInputTokens" in day:  # of Codex: input with what was read from the cache
        cached = day["cachedInputTokens"]
        return day["inputTokens"] - cached, day["outputTokens"], cached, 0
    return (
        day["inputTokens"],
        day["outputTokens"],
        day["cacheReadTokens"],
        day["cacheCreationTokens"],
    )


def usage(*words: str) -> dict[str, Any]:
    done = fleetctl("usage", "--json", "--timezone", "UTC", *words)
    assert done.status == 0, done.err
    found: dict[str, Any] = done.json
    return found


def days() -> Days:
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    found = {}
    for group in usage("--by", "day")["groups"]:
        sums = [sum(each[name] for each in group["models"]) for name in names]
        found[group["name"]] = (sums[0], sums[1], sums[2], sums[3])
    return found


def requests(*words: str) -> list[int]:
    groups = usage(*words)["groups"]
    return [sum(each["requests"] for each in group["models"]) for group in groups]


def test_claude_with_a_subagent_resumed_and_forked(claude: Desk[Claude]) -> None:
    looks = {"description": "Read the notes", "prompt": "Read them", "run_in_background": False}
    aside = [calls(Call("Agent", looks)), calls(bash("true")), says("Nothing.")]
    claude.script.plays([calls(bash("true"), bash("echo 1")), *aside, says("Done.")])
    assert claude.cli.prompt("Do it").status == 0
    claude.script.plays([says("Again.")])
    assert claude.cli.go_on("Go on").status == 0
    claude.script.plays([says("Elsewhere.")])
    assert claude.cli.prompt("Go on", "--continue", "--fork-session").status == 0

    told = days()

    asked = len(claude.script.asked_in("turn"))
    assert [figures[:2] for figures in told.values()] == [(asked * INPUT, asked * OUTPUT)]
    # The fork's agent has its own request only, the first has those of its subagent too.
    assert sorted(requests()) == [1, asked - 1]
    assert usage()["reading"]["repeated"] > 0
    assert told == ccusage(packages.CCUSAGE)


def test_codex_resumed_and_forked(codex: Desk[Codex]) -> None:
    codex.script.plays([calls(codex_shell("true")), says("Done.")])
    assert codex.cli.prompt("Do it").status == 0
    codex.script.plays([calls(codex_shell("false")), says("Again.")])
    assert codex.cli.go_on("Go on").status == 0
    [rollout] = Path(os.environ["HOME"], ".codex", "sessions").rglob("rollout-*.jsonl")
    codex.script.plays([says("Elsewhere.")])
    assert codex.cli.fork(rollout.stem[-36:], "Go on").status == 0

    told = days()

    assert [figures[:2] for figures in told.values()] == [(5 * INPUT, 5 * OUTPUT)]
    assert sorted(requests()) == [1, 4]
    assert told == ccusage(packages.CCUSAGE_CODEX)


def test_gemini_resumed(gemini: Desk[Gemini]) -> None:
    gemini.script.plays([calls(gemini_shell("true")), says("Done.")])
    assert gemini.cli.prompt("Do it").status == 0
    gemini.script.plays([says("Again.")])
    assert gemini.cli.go_on("Go on").status == 0
    assert [figures[:2] for figures in days().values()] == [(3 * INPUT, 3 * OUTPUT)]


def test_opencode(opencode: Desk[OpenCode]) -> None:
    opencode.script.plays([calls(opencode_shell("true")), says("Done.")])
    assert opencode.cli.prompt("Do it").status == 0
    assert [figures[:2] for figures in days().values()] == [(2 * INPUT, 2 * OUTPUT)]
