"""``fleetctl mcp install``: the server in the settings of agent CLIs, and out of them again."""

import json
import os
import random
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from fleetctl import cli
from fleetctl.integrations import mcp_extra, mcp_json, mcp_toml
from fleetctl.integrations.mcp import NAME, is_ours, this_command
from fleetctl.integrations.registry import HARNESSES, ServerCommand
from tests.support.processes import fleetctl

COMMAND = ServerCommand("/opt/fleet/bin/python3", ("-I", "/opt/fleet/lib/fleetctl/mcp_main.py"))
TEXTS = [
    "",
    "{}",
    "{\n}\n",
    '{"a": 1}',
    '{\n\t"a": [1, 2],\n\t"b": {}\n}\n',
    '{\n  // mine\n  "SECTION": {\n    "other": {"command": "x"}, // its\n  },\n  "z": null\n}\n',
    '{\n  "SECTION": {}\n}\n',
    '{"SECTION": {"other": {"command": "x"}}, "z": 1}',
    '{\r\n    "a": 1\r\n}\r\n',
]
TOML = [
    "",
    'model = "x"\n',
    'model = "x"',
    "# mine\n[features]\nplugins = false # no\n\n\n",
    '[mcp_servers.other]\ncommand = "x"\n\n[mcp_servers.other.env]\nA = "b"\n',
    '[projects."/home/x"]\ntrust_level = "trusted"\r\n',
]


def values(text: str) -> object:
    return mcp_json.parse(text).value() if text.strip() else {}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("harness", [name for name, each in HARNESSES.items() if not each.mcp.toml])
def test_a_server_goes_into_a_json_text_and_out_again_without_a_trace(harness, text) -> None:
    place = HARNESSES[harness].mcp
    text = text.replace("SECTION", place.section)
    entry = place.entry(COMMAND)
    after = mcp_json.put_in(text, place.section, NAME, entry)
    assert mcp_json.found(after, place.section, NAME) == entry
    assert is_ours(entry)
    assert mcp_json.put_in(after, place.section, NAME, entry) == after
    assert mcp_json.take_out(after, place.section, NAME, text) == text
    # Without the copy, or when something else changed since, the values are as before.
    left = mcp_json.take_out(after, place.section, NAME, None)
    assert (values(left) if left else {}) in (
        values(text),
        {key: value for key, value in dict(values(text)).items() if value != {}},
    )


@pytest.mark.parametrize("text", TOML)
def test_a_server_goes_into_a_toml_text_and_out_again_without_a_trace(text) -> None:
    entry = HARNESSES["codex"].mcp.entry(COMMAND)
    after = mcp_toml.put_in(text, "mcp_servers", NAME, entry)
    assert mcp_toml.found(after, "mcp_servers", NAME) == entry
    assert after.startswith(text)
    assert mcp_toml.put_in(after, "mcp_servers", NAME, entry) == after
    assert tomllib.loads(mcp_toml.take_out(after, "mcp_servers", NAME, text) or "") == (
        tomllib.loads(text)
    )
    behind = after + '\n[zeta]\na = "1"\n'
    left = mcp_toml.take_out(behind, "mcp_servers", NAME, text)
    assert left is not None
    assert left.startswith(text.rstrip("\n"))
    assert tomllib.loads(left) == tomllib.loads(text) | {"zeta": {"a": "1"}}


def test_what_a_person_set_on_the_entry_stays() -> None:
    old = ServerCommand("/old/python3", ("-I", "/old/fleetctl/mcp_main.py"))
    place = HARNESSES["gemini"].mcp
    text = json.dumps({"mcpServers": {NAME: place.entry(old) | {"trust": True, "timeout": 9}}})
    after = mcp_json.put_in(text, place.section, NAME, place.entry(COMMAND))
    assert json.loads(after)["mcpServers"][NAME] == place.entry(COMMAND) | {
        "trust": True,
        "timeout": 9,
    }
    toml = mcp_toml.put_in('a = "1"\n', "mcp_servers", NAME, HARNESSES["codex"].mcp.entry(old))
    toml += 'tool_timeout_sec = 90\n\n[mcp_servers.fleet.tools.lock]\nmode = "auto"\n\n[b]\nc = 1\n'
    after = mcp_toml.put_in(toml, "mcp_servers", NAME, HARNESSES["codex"].mcp.entry(COMMAND))
    assert tomllib.loads(after)["mcp_servers"][NAME] == HARNESSES["codex"].mcp.entry(COMMAND) | {
        "tool_timeout_sec": 90,
        "tools": {"lock": {"mode": "auto"}},
    }
    assert mcp_toml.take_out(after, "mcp_servers", NAME, None) == 'a = "1"\n\n[b]\nc = 1\n'


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { other = { command = 'x' } }\n",
        "mcp_servers = { fleet = { command = 'fleetctl', args = ['mcp'] } }\n",
        "[mcp_servers]\nfleet = { command = 'fleetctl', args = ['mcp'] }\n",
    ],
)
def test_toml_that_cannot_be_changed_without_rewriting_is_refused(text) -> None:
    with pytest.raises(mcp_toml.UnusableSettings, match="written in a way"):
        mcp_toml.put_in(text, "mcp_servers", NAME, HARNESSES["codex"].mcp.entry(COMMAND))


@pytest.fixture
def written(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = home / "home"
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return directory


def test_all_are_installed_shown_and_taken_out(written: Path) -> None:
    names = list(HARNESSES)
    before = '{\n  "numStartups": 3\n}\n'
    (written / ".claude.json").write_text(before)
    installed = fleetctl("mcp", "install", *names, "--yes")
    assert installed.status == 0, installed.err
    assert "claude: server added to" in installed.out
    again = fleetctl("mcp", "install", *names, "--yes")
    assert again.out.count("already installed") == len(names)
    shown = fleetctl("mcp", "status", "--json").json
    assert [each["installed"] for each in shown["harnesses"]] == ["yes"] * len(names)
    assert all(each["current"] for each in shown["harnesses"])
    table = fleetctl("mcp", "status").out.splitlines()
    assert table[0].split() == ["HARNESS", "PROGRAM", "SERVER", "FILE"]
    assert len(table) == len(names) + 1
    # It stands in Gemini's settings beside the hooks, and each goes by itself.
    assert fleetctl("hooks", "install", "gemini", "--yes").status == 0
    assert fleetctl("mcp", "uninstall", *names, "--yes").status == 0
    left = json.loads((written / ".gemini/settings.json").read_text())
    assert list(left) == ["hooks"]
    assert fleetctl("hooks", "uninstall", "gemini", "--yes").status == 0
    assert (written / ".claude.json").read_text() == before
    # What there was when the hooks came was the server, so the file stays, and nothing in it.
    assert json.loads((written / ".gemini/settings.json").read_text()) == {}
    files = sorted(path.name for path in written.rglob("*") if path.is_file())
    assert files == [".claude.json", "settings.json"]


def test_without_the_package_nothing_is_installed_and_it_is_said_each_time(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that cannot start would be a complaint of the agent CLI at each of its starts."""
    monkeypatch.setattr(mcp_extra, "is_installed", lambda: False)
    settings = written / ".claude.json"
    for there in (False, True):
        if there:  # from before the package went
            assert fleetctl("mcp", "install", "claude", "--yes").status == 0
        assert cli.main(["mcp", "install", "claude", "--yes"]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert "needs the package mcp, which is not installed. Nothing was changed." in said.err
        assert mcp_extra.install_command() in " ".join(said.err.split())
        assert settings.exists() is there
        assert cli.main(["mcp", "install", "claude", "--dry-run"]) == 0
        said = capsys.readouterr()
        assert ("already installed" in said.out) is there
        assert "needs the package mcp" in said.err
    assert cli.main(["mcp", "uninstall", "claude", "--yes"]) == 0
    assert not settings.exists()


def test_the_command_that_is_installed_is_the_server(written: Path) -> None:
    assert fleetctl("mcp", "install", "claude", "--yes").status == 0
    entry = json.loads((written / ".claude.json").read_text())["mcpServers"]["fleet"]
    bare = {"HOME": str(written), "PATH": os.environ["PATH"]} | entry["env"]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        },
    }
    with subprocess.Popen(
        [entry["command"], *entry["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=bare,
        cwd="/",
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(hello) + "\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "fleet"
        server.stdin.close()
        assert server.wait(20) == 0


def test_somebody_elses_server_by_the_name_stays(written: Path) -> None:
    text = '{"mcpServers": {"fleet": {"command": "npx", "args": ["fleet-of-cars"]}}}'
    (written / ".claude.json").write_text(text)
    refused = fleetctl("mcp", "install", "claude", "--yes")
    assert refused.status == 1
    assert "a server named fleet already, and it is not fleetd's" in refused.err
    assert "not installed" in fleetctl("mcp", "uninstall", "claude", "--yes").out
    assert "no, another's" in fleetctl("mcp", "status", "claude").out
    assert (written / ".claude.json").read_text() == text


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        (".claude.json", "{", "cannot be understood"),
        (".claude.json", "[]", "it holds no object"),
        (".claude.json", '{"mcpServers": []}', 'its "mcpServers" is no object'),
        (".claude.json", '{"mcpServers": {}, "mcpServers": {}}', "more than one"),
        (".codex/config.toml", "a = = 1", "cannot be understood"),
    ],
)
def test_a_file_that_cannot_be_understood_is_left_alone(written: Path, file, text, told) -> None:
    place = written / file
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    harness = "codex" if "codex" in file else "claude"
    refused = fleetctl("mcp", "install", harness, "--yes")
    assert refused.status == 1
    assert told in refused.err
    assert place.read_text() == text
    assert f"{harness}: " in fleetctl("mcp", "status", harness).err


def test_a_dry_run_and_a_project(written: Path) -> None:
    shown = fleetctl("mcp", "install", "claude", "--project", "--dry-run")
    assert "+++ " in shown.out
    assert not Path(".mcp.json").exists()
    assert fleetctl("mcp", "install", "claude", "--project", "--yes").status == 0
    assert "fleet" in json.loads(Path(".mcp.json").read_text())["mcpServers"]
    assert fleetctl("mcp", "install", "--all", "claude").status == 2
    assert fleetctl("mcp", "install").status == 2
    assert fleetctl("mcp", "install", "vim").status == 2
    refused = fleetctl("mcp", "uninstall", "claude", "--project")
    assert refused.status == 2
    assert "--yes" in refused.err


def test_the_command_names_this_installation_and_the_socket_that_is_not_the_usual(
    home: Path,
) -> None:
    command = this_command()
    assert os.path.samefile(command.program, sys.executable)
    assert command.args[1].endswith("/fleetctl/mcp_main.py")
    assert command.env == {"FLEET_SOCKET": os.environ["FLEET_SOCKET"]}


@pytest.mark.parametrize(
    ("files", "begins"),
    [
        ({}, f"{sys.executable} -m pip install 'mcp>=2.3"),
        ({"pipx_metadata.json": "{}"}, "pipx inject "),
        ({"uv-receipt.toml": ""}, "uv tool install --with 'mcp>=2.3"),
    ],
)
def test_how_to_get_the_package_depends_on_how_fleetctl_came(tmp_path, files, begins) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    told = mcp_extra.install_command(tmp_path)
    assert told.startswith(begins), told


def test_a_uv_tool_is_installed_from_where_it_came(tmp_path) -> None:
    receipt = '[tool]\nrequirements = [{ name = "fleetd", directory = "/src/my fleetd" }]\n'
    (tmp_path / "uv-receipt.toml").write_text(receipt)
    assert mcp_extra.install_command(tmp_path).endswith(" '/src/my fleetd'")


@pytest.mark.parametrize(
    "receipt", ["", "[", '[tool]\nrequirements = [{ name = "fleetd", extras = ["x"] }]\n']
)
def test_a_uv_tool_whose_receipt_does_not_say_so_is_installed_from_where_the_package_came(
    tmp_path, monkeypatch, receipt
) -> None:
    (tmp_path / "uv-receipt.toml").write_text(receipt)
    told = tmp_path / "fleetd-1.dist-info"
    told.mkdir()
    (told / "direct_url.json").write_text('{"url": "file:///src/fleetd", "dir_info": {}}')
    installed = PathDistribution(told)
    monkeypatch.setattr(mcp_extra.metadata, "distribution", lambda _name: installed)
    assert mcp_extra.install_command(tmp_path).endswith(" file:///src/fleetd")
    (told / "direct_url.json").unlink()
    assert mcp_extra.install_command(tmp_path).endswith(" fleetd")


def test_toml_of_any_values_is_read_as_it_was_written() -> None:
    letters = 'ab"\\ \t\u00e9\U0001f600\x7f[]{}#='
    choose = random.Random(7)
    for _ in range(200):
        word = "".join(choose.choices(letters, k=12))
        entry = {"command": word, "args": [word, word], "env": {"A": word}}
        after = mcp_toml.put_in("", "mcp_servers", NAME, entry)
        assert mcp_toml.found(after, "mcp_servers", NAME) == entry
