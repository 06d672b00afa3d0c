"""Commands of agent CLIs: what opens a session again, what begins one, and hostile ids."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetctl.integrations.registry import HARNESSES
from fleetctl.launch.commands import (
    ARGUMENT_BYTES,
    BadSessionId,
    CannotStart,
    Launch,
    ProgramMissing,
    PromptTooLong,
    beginning,
    reopening,
    starters,
)

UUID = "1f0c2a9b-7d1e-4a55-9c0e-2b8f6f0d3c11"
SES = "ses_dfe88ae76ffeyjF9utykxFXhs4"
IDS = {name: SES if name == "opencode" else UUID for name in HARNESSES}
RESUMED = {
    "claude": f"claude --resume {UUID}",
    "codex": f"codex resume {UUID}",
    "gemini": f"gemini --resume {UUID}",
    "opencode": f"opencode -s {SES}",
    "cursor": f"cursor-agent --resume {UUID}",
    "copilot": f"copilot --resume={UUID}",
    "antigravity": f"agy --conversation {UUID}",
}
# What a shell would read, what an option looks like, what a terminal does, and what looks alike.
HOSTILE = st.one_of(
    st.text(),
    st.text(alphabet=" \t\n\r\0;&|$`'\"\\<>(){}[]*?!#~-=/.\x1b\x9b\u202eab0", min_size=1),
    st.sampled_from(sorted(IDS.values())).flatmap(
        lambda known: st.one_of(
            st.text(min_size=1).map(lambda more: known + more),
            st.text(min_size=1).map(lambda more: more + known),
        )
    ),
)
NAMES = st.sampled_from(sorted(HARNESSES))


@pytest.mark.parametrize("name", HARNESSES)
def test_each_cli_has_the_line_that_opens_a_session_again(name: str) -> None:
    assert reopening(name, IDS[name]).shell_line == RESUMED[name]
    line = reopening(name, IDS[name], "/home/it's here", {"FLEET_AGENT_ID": "a b"}).shell_line
    assert line == f"cd '/home/it'\"'\"'s here' && FLEET_AGENT_ID='a b' {RESUMED[name]}"


def _reopening(name: str, session_id: str) -> Launch | BadSessionId:
    try:
        return reopening(name, session_id, "/tmp")
    except BadSessionId as refused:
        return refused


@given(NAMES, HOSTILE)
@example("claude", "--dangerously-skip-permissions")
@example("claude", f"{UUID}\n")
@example("codex", "$(touch owned)")
@example("codex", "\uff11f\uff10c")
@example("gemini", "latest")
@example("gemini", "7")
@example("opencode", "ses_; true")
@example("copilot", "=")
def test_an_id_is_refused_or_is_one_word_that_is_no_option(name: str, session_id: str) -> None:
    """Hostile ids never reach a shell line: what is accepted is plain letters, digits, - and _."""
    launch = _reopening(name, session_id)
    if isinstance(launch, BadSessionId):
        # Nor does the refusal hand it on to the terminal.
        assert launch.message.isprintable()
        assert launch.message.isascii()
        return
    assert session_id.isascii()
    assert session_id[0].isalnum()
    assert set(session_id) <= set("-_") | set(map(chr, range(48, 58))) | set(
        map(chr, [*range(65, 91), *range(97, 123)])
    )
    assert shlex.split(launch.shell_line) == ["cd", "/tmp", "&&", *launch.argv]
    expected = tuple(shlex.split(RESUMED[name].replace(IDS[name], session_id)))
    assert launch.argv == expected


def _words(command: str) -> list[str]:
    """Return the words of a command as a shell reads them."""
    script = f"printf '%s\\0' {command}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0/")))
@example("it's \x1b[2J\u202e\n\\ $(touch owned)\u00e91")
def test_no_directory_is_read_by_the_shell_or_the_terminal(name: str) -> None:
    line = reopening("claude", UUID, f"/nowhere/{name}").shell_line
    assert line.isprintable()
    command = line.removesuffix(f" && claude --resume {UUID}")
    assert _words(command) == ["cd", f"/nowhere/{name}"]


@pytest.mark.parametrize("name", starters())
@pytest.mark.parametrize("prompt", ["Go on", "--help", "$(false) 'x' \"y\"\nsecond line"])
def test_a_first_prompt_is_one_argument_and_no_option(name: str, prompt: str) -> None:
    launch = beginning(name, prompt, "/tmp")
    *before, last = launch.argv
    if before[-1:] == ["--"]:
        assert last == prompt
    else:
        option, _, value = last.partition("=")
        assert option in ("--prompt-interactive", "--prompt", "--interactive")
        assert value == prompt
    assert launch.shell_line.startswith("cd /tmp && ")
    assert _words(launch.shell_line.removeprefix("cd /tmp && ")) == [*launch.argv]


def test_every_cli_of_the_command_line_can_begin() -> None:
    assert set(starters()) == {"claude", "codex", "gemini", "opencode", "copilot", "cursor"}


def test_a_prompt_that_the_system_takes_for_one_argument_is_taken_and_no_longer_one() -> None:
    longest = beginning("claude", "x" * (ARGUMENT_BYTES - 1))
    done = subprocess.run(["/bin/true", *longest.argv[1:]], check=False)
    assert done.returncode == 0
    with pytest.raises(PromptTooLong) as refused:
        beginning("claude", "x" * ARGUMENT_BYTES)
    assert str(ARGUMENT_BYTES) in refused.value.message
    with pytest.raises(PromptTooLong):  # its option counts
        beginning("gemini", "x" * (ARGUMENT_BYTES - 1))
    with pytest.raises(PromptTooLong):  # bytes count, not characters
        beginning("claude", "é" * (ARGUMENT_BYTES // 2))


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="another system allows more")
def test_the_limit_is_that_of_the_system() -> None:
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true", "x" * ARGUMENT_BYTES], check=False)


def test_what_no_command_can_open_is_refused_with_the_reason() -> None:
    with pytest.raises(CannotStart, match="'aider'"):
        reopening("aider", UUID)
    with pytest.raises(CannotStart, match="is unknown"):
        reopening(None, UUID)
    with pytest.raises(CannotStart, match="id of the session of Codex CLI"):
        reopening("codex", None)
    with pytest.raises(CannotStart, match="begins a session of Antigravity"):
        beginning("antigravity", "Go")
    with pytest.raises(CannotStart, match="cannot be set"):
        beginning("claude", "Go", presets={"A;B": "x"})


def test_a_cli_that_is_not_installed_is_named_by_its_executable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing, match="no executable 'cursor-agent'") as refused:
        reopening("cursor", UUID).executable()
    assert refused.value.values["program"] == "cursor-agent"
    (tmp_path / "cursor-agent").write_text("#!/bin/sh\n")
    (tmp_path / "cursor-agent").chmod(0o700)
    assert reopening("cursor", UUID).executable() == str(tmp_path / "cursor-agent")
