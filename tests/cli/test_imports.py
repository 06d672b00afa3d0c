"""What a command imports, and how it ends: nothing heavy, nothing it does not need."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import fleetctl

HEAVY = ("trio", "jsonrpcserver", "apsw", "rich", "textual", "asyncio", "platformdirs", "tomllib")
HEAVY += ("logging", "msgspec", "socket", "datetime", "shutil", "locale")
# Each takes as long to import as the whole of a plain command: status is run again and again.
SLOW = ("argparse", "collections", "contextlib", "enum", "functools", "importlib", "inspect")
SLOW += ("ipaddress", "json", "pathlib", "re", "struct", "typing", "types", "urllib", "warnings")


LIST_MODULES = f"""
import sys
sys.path[:0] = {[str(Path(fleetctl.__file__).parents[1]), sysconfig.get_path("purelib")]!r}
before = set(sys.modules)
from fleetctl import __main__, cli
status = cli.main(sys.argv[1:])
print(*(set(sys.modules) - before), sep="\\n", file=sys.stderr)
sys.exit(status)
"""


def imported(*command: str) -> set[str]:
    """Return the names of all modules that a command imported."""
    process = subprocess.run(
        # Without site: the finder of an editable install has imported half of the library before.
        [sys.executable, "-S", "-c", LIST_MODULES, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(process.stderr.split())


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("checkpoint",),
        ("checkpoints", "list"),
        ("sortie", "list"),
        ("snapshot", "list"),
    ],
)
def test_a_command_imports_nothing_heavy(mission, command):
    modules = imported(*command)

    assert "fleetctl.client" in modules
    heavy = {name for name in modules if name.split(".")[0] in HEAVY}
    assert not heavy


def test_status_imports_what_the_interpreter_has_and_what_is_small(mission):
    modules = imported("status")

    heavy = {name for name in modules if name.split(".")[0] in SLOW}
    assert not heavy
    assert len(modules) < 45, sorted(modules)


def test_a_command_imports_no_other_command(mission):
    modules = imported("checkpoint")

    # What begins with an underscore is shared by commands and is none itself.
    commands = {name for name in modules if name.startswith("fleetctl.commands.")}
    commands = {name for name in commands if "._" not in name}
    assert commands == {"fleetctl.commands.checkpoint"}
    assert "fleetd.protocol.methods" not in modules


def test_the_entry_point_runs_and_returns_the_status(home):
    code = "import sys; from fleetctl.__main__ import main; sys.exit(main(['checkpoints', 'show']))"

    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert process.returncode == 2
    assert process.stderr.startswith("Error: the following arguments are required: ID\n")


def test_what_was_printed_before_a_failure_is_there_at_the_end(home):
    code = (
        "from fleetctl import __main__, cli\n"
        "cli.main = lambda argv: print('half') or 3\n"
        "__main__.main(['status'])"
    )

    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (process.returncode, process.stdout, process.stderr) == (3, "half\n", "")


def test_no_command_but_its_own_loads_the_server_of_tools(home):
    for command in (("config",), ("hooks", "status"), ("mcp", "status")):
        loaded = imported(*command)
        assert not loaded & {"fleetctl.mcp_server", "mcp", "trio", "asyncio"}


def test_the_web_server_loads_what_it_serves_with_and_no_more(home):
    code = f"""
import sys
sys.path[:0] = {[str(Path(fleetctl.__file__).parents[1]), sysconfig.get_path("purelib")]!r}
import trio
from fleetctl.web import place, run, running
from fleetctl.web.run import serve
claim = running.find_or_claim(running.private_socket({str(home / "run" / "d.sock")!r}))
serving = trio.CancelScope()
async def serve_once():
    with serving:
        await serve(claim, place.Place(port=0), {str(home / "run" / "d.sock")!r}, service=False,
                    on_ready=lambda server: serving.cancel())
trio.run(serve_once)
print(*sys.modules, sep="\\n")
"""
    process = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    modules = set(process.stdout.split())
    assert {"h11", "trio", "fleetctl.web.server"} <= modules
    heavy = {"textual", "rich", "mcp", "apsw", "jsonrpcserver", "asyncio", "argparse", "anyio"}
    heavy |= {"starlette", "httpx", "email", "http.client", "urllib.request", "webbrowser"}
    heavy |= {"encodings.idna", "platformdirs", "tomllib", "fleetctl.integrations"}
    assert not heavy & modules


def test_only_its_own_command_loads_the_web_server(home):
    for command in (("config",), ("notify", "status"), ("web", "--help")):
        process = subprocess.run(
            [sys.executable, "-S", "-c", LIST_MODULES, *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        loaded = process.stderr.split()
        assert not {"h11", "trio"} & set(loaded)
        ours = {name for name in loaded if name.startswith("fleetctl.web.")}
        # Its port is in the help.
        assert ours == ({"fleetctl.web.place"} if command[0] == "web" else set())


def test_importing_fleetctl_leaves_argparse_as_it_was(home):
    code = (
        "import argparse; before = argparse._\n"
        "from fleetctl import args, cli; import fleetctl.commands.status\n"
        "cli.main(['--version'])\n"
        "assert argparse._ is before"
    )

    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
