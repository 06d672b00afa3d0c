"""What is built holds everything, and works wherever it was installed, by whatever installs it."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd import __version__
from tests.packaging.conftest import Built, build, carried_out, virtual_environment

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="there is no C compiler (cc)"
)

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
    for unit in ("fleetd.service", "fleetd.socket", "fleet-notify.service", "fleet-web.service"):
        assert f"fleetctl/service/units/{unit}" in names
    compiled = "fleetctl/_hook_client"
    assert (compiled in names) == (shutil.which("cc") is not None)
    if compiled in names:
        assert packed.getinfo(compiled).external_attr >> 16 & 0o111
    foreign = {name.partition("/")[0] for name in names} - {"fleetd", "fleetctl"}
    assert foreign == {f"fleetd-{__version__}.data", f"fleetd-{__version__}.dist-info"}


def test_the_sdist_holds_the_repository(built: Built) -> None:
    """With its tests: who packages it can run them."""
    with tarfile.open(built.sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert tracked(built.clone) - {".gitignore"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def compiled_for(wheel: Path) -> str:
    """Return the platform of a wheel, as its name and its own words have it."""
    with zipfile.ZipFile(wheel) as packed:
        [info] = [name for name in packed.namelist() if name.endswith(".dist-info/WHEEL")]
        [tag] = [line for line in packed.read(info).decode().splitlines() if "Tag: " in line]
    assert tag == f"Tag: {wheel.stem.split('-', 2)[2]}"
    return tag.rpartition("-")[2]


@needs_compiler
def test_a_wheel_with_a_compiled_program_is_for_its_platform(built: Built) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert compiled_for(built.wheel) == platform
    with tarfile.open(built.sdist) as packed:
        names = [name.partition("/")[2] for name in packed.getnames()]
    assert "fleetctl/_hook_client" not in names
    assert {"native/hook_client.c", "native/build_backend.py"} <= set(names)


# What a machine may have for a compiler, and what the build says of it.
COMPILERS = {
    "none": ("no-such-cc", "no C compiler 'no-such-cc' was found"),
    "one that fails": ("false", "false failed: 1"),
    "one that makes nothing": ("true", "_hook_client"),
    "no word": ("'", "No closing quotation"),
}


@pytest.mark.parametrize("kind", COMPILERS)
def test_without_a_compiler_the_client_in_python_is_packed(
    built: Built, elsewhere: dict[str, str], tmp_path: Path, kind: str
) -> None:
    """Also where an earlier build of the same clone left one behind."""
    compiler, told = COMPILERS[kind]
    clone = tmp_path / "clone"
    carried_out(["git", "clone", "--quiet", built.clone, clone])
    for left in ("fleetctl", "build/lib/fleetctl"):
        (clone / left).mkdir(parents=True, exist_ok=True)
        (clone / left / "_hook_client").write_text("of an earlier build")
    said = carried_out(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, clone],
        env={**os.environ, "CC": compiler},
    )
    [note] = [line for line in said.splitlines() if "hooks use the client in Python" in line]
    assert told in note
    [wheel] = tmp_path.glob("*.whl")
    assert compiled_for(wheel) == "any"
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if "_hook_client" in name]
    programs = virtual_environment(Path(elsewhere["HOME"]) / "venv", wheel)
    assert "/fleetctl/_hook_client'" not in launcher(programs / "fleetctl", elsewhere)


@needs_compiler
@pytest.mark.parametrize("flags", ["-O0", "-fsyntax-error"])
def test_an_editable_installation_has_the_program_in_its_clone(
    built: Built, elsewhere: dict[str, str], tmp_path: Path, flags: str
) -> None:
    """CFLAGS are honoured: a flag that the compiler does not know makes it fail."""
    clone = tmp_path / "clone"
    carried_out(["git", "clone", "--quiet", built.clone, clone])
    place = Path(elsewhere["HOME"]) / "venv"
    carried_out([sys.executable, "-m", "venv", "--without-pip", place])
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install"]
    env = {**os.environ, "CFLAGS": flags}
    carried_out([*pip, "--quiet", "--use-pep517", "--editable", clone], env=env)
    launched = launcher(place / "bin" / "fleetctl", elsewhere)
    assert (f"'{clone}/fleetctl/_hook_client' " in launched) == (flags == "-O0")
    assert f"'{clone}/fleetctl/hook.py' " in launched
    assert carried_out(["git", "status", "--short"], cwd=clone) == ""


def launcher(fleetctl: Path, env: dict[str, str]) -> str:
    """Return the launcher that an installation of hooks writes; nothing of that stays."""
    carried_out([fleetctl, "hooks", "install", "claude", "--yes"], env=env)
    [place] = Path(env["HOME"]).parent.rglob("fleet-hook")
    text = place.read_text()
    carried_out([fleetctl, "hooks", "uninstall", "--all", "--yes"], env=env)
    return text


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
    launched = launcher(programs / "fleetctl", elsewhere)
    assert ("/fleetctl/_hook_client' " in launched) == bool(shutil.which("cc"))
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
