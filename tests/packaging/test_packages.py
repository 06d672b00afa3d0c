"""What is built holds everything, and works wherever it was installed, by whatever installs it."""

import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd import __version__
from tests.packaging.conftest import Built, build, carried_out, virtual_environment

SHARED = {
    *("bash-completion/completions/fleet", "bash-completion/completions/fleetctl"),
    *("bash-completion/completions/fleetd", "zsh/site-functions/_fleetctl"),
    *("zsh/site-functions/_fleetd", "man/man1/fleet.1", "man/man1/fleetctl.1"),
    *("man/man1/fleetd.1", "man/man1/fleetctl-mission.1", "man/man5/fleet-config.5"),
}


def tracked(clone: Path, *under: str) -> set[str]:
    """Return the files that are in the repository; links are what they lead to."""
    found = set()
    for name in carried_out(["git", "ls-files", *under], cwd=clone).splitlines():
        path = clone / name
        inside = path.iterdir() if path.is_symlink() else [path]
        found |= {f"{name}/{each.name}" if path.is_symlink() else name for each in inside}
    return found


def test_the_wheel_holds_the_packages_and_what_they_need(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as packed:
        names = set(packed.namelist())
    data, info = f"fleetd-{__version__}.data/data/share/", f"fleetd-{__version__}.dist-info/"
    assert tracked(built.clone, "fleetd", "fleetctl") <= names
    assert {data + name for name in SHARED} <= names
    pages = {name for name in tracked(built.clone, "fleetctl/share/man") if name.endswith(".1")}
    assert {data + "man/man1/" + Path(name).name for name in pages} <= names
    assert f"{info}licenses/LICENSE" in names
    for name in ("fleetd/py.typed", "fleetctl/py.typed", "fleetctl/plugins/opencode.js"):
        assert name in names
    units = {"fleetctl/service/units/fleetd.service", "fleetctl/service/units/fleetd.socket"}
    assert units <= names
    foreign = {name.partition("/")[0] for name in names} - {"fleetd", "fleetctl"}
    assert foreign == {f"fleetd-{__version__}.data", f"fleetd-{__version__}.dist-info"}


def test_the_sdist_holds_the_repository(built: Built) -> None:
    """With its tests: who packages it can run them."""
    with tarfile.open(built.sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert tracked(built.clone) - {".gitignore"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def by_pip(source: Path, home: Path, _installers: Path, _env: dict[str, str]) -> Path:
    return virtual_environment(home / "venv", f"fleetd[mcp] @ {source.as_uri()}")


def by_pipx(source: Path, home: Path, installers: Path, env: dict[str, str]) -> Path:
    carried_out([installers / "pipx", "install", source], env=env)
    return home / ".local" / "bin"


def by_uv(source: Path, home: Path, installers: Path, env: dict[str, str]) -> Path:
    python = installers / "python"
    carried_out([installers / "uv", "tool", "install", "--python", python, source], env=env)
    return home / ".local" / "bin"


WAYS = {
    "pip from a clone": (by_pip, "clone"),
    "pipx from a wheel": (by_pipx, "wheel"),
    "uv from an sdist": (by_uv, "sdist"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_what_is_installed_works(
    built: Built,
    installers: Path,
    elsewhere: dict[str, str],
    way: tuple[Callable[..., Path], str],
) -> None:
    install, what = way
    home = Path(elsewhere["HOME"])
    programs = install(getattr(built, what), home, installers, elsewhere)

    def ran(*words: str) -> str:
        return carried_out([programs / words[0], *words[1:]], env=elsewhere, cwd=home)

    assert ran("fleetctl", "--version") == f"fleetctl {__version__}\n"
    assert ran("fleet", "--version") == f"fleet {__version__}\n"
    assert ran("fleetd", "--help").startswith("usage: fleetd")
    assert "complete -o nosort -F _fleetctl fleetctl fleet" in ran(
        "fleetctl", "completions", "bash"
    )
    assert "compdef _fleetctl fleetctl fleet" in ran("fleetctl", "completions", "zsh")
    assert "hook.py" in ran("fleetctl", "hooks", "install", "claude", "--dry-run")
    share = (programs / "fleetctl").resolve().parents[1] / "share"
    assert [name for name in sorted(SHARED) if not (share / name).is_file()] == []
    try:
        assert "started" in ran("fleetctl", "daemon", "start")
        ran("fleetctl", "mission", "create", "From a package")
        assert "From a package" in ran("fleetctl", "mission", "list")
        assert "Everything is in order" in ran("fleetctl", "doctor")
    finally:
        ran("fleetctl", "daemon", "stop")
    if install is by_pip:
        assert "usage: fleetctl mcp" in ran("fleetctl", "mcp", "--help")
        carried_out([programs / "python", "-c", "import mcp"], env=elsewhere)
    if install is by_pipx:
        assert (home / ".local/share/man/man1/fleetctl.1").exists()


@pytest.fixture
def upgraded(built: Built, tmp_path: Path) -> Path:
    """Return a wheel of the version after this one."""
    clone = tmp_path / "next"
    carried_out(["git", "clone", "--quiet", built.clone, clone])
    module = clone / "fleetd" / "__init__.py"
    module.write_text(module.read_text().replace(f'"{__version__}"', '"99.0.0"'))
    [wheel] = build(clone, "--wheel")
    return wheel


def test_an_upgrade_below_a_running_daemon_is_told_of_and_ends_with_a_restart(
    built: Built, upgraded: Path, elsewhere: dict[str, str]
) -> None:
    home = Path(elsewhere["HOME"])
    programs = virtual_environment(home / "venv", built.wheel)

    def ran(*words: str, status: int = 0, stdin: str = "") -> str:
        done = subprocess.run(
            [str(programs / words[0]), *words[1:]],
            env=elsewhere,
            cwd=home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done
        return done.stdout + done.stderr

    event = {"session_id": "s-1", "cwd": str(home), "hook_event_name": "SessionStart"}
    heard = json.dumps({**event, "source": "startup"})
    try:
        ran("fleetctl", "daemon", "start")
        ran("fleetctl", "mission", "create", "Before")
        ran("fleetctl", "hook", "claude", stdin=heard)
        virtual_environment(home / "venv", upgraded)

        told = "fleetd is of version 0.1.0, fleetctl of 99.0.0: fleetctl daemon restart"
        assert told.replace("0.1.0", __version__) in ran("fleetctl", "daemon", "status")
        assert "restart fleetd after an upgrade" in ran("fleetctl", "doctor", status=1)
        # Until then everything goes on: commands and hooks, the old bytecode of whose client is
        # of another file now.
        assert "Before" in ran("fleetctl", "mission", "list")
        ran("fleetctl", "hook", "claude", stdin=json.dumps({**event, "hook_event_name": "Stop"}))

        assert "99.0.0" in ran("fleetctl", "daemon", "restart")
        assert "of version" not in ran("fleetctl", "daemon", "status")
        assert "Before" in ran("fleetctl", "mission", "list")
        heard_of = json.loads(ran("fleetctl", "hooks", "status", "--json"))
        assert heard_of["spool"] in (0, None, []) or not heard_of["spool"].get("files")
    finally:
        ran("fleetctl", "daemon", "stop")
