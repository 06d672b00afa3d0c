"""Service specification: the parts of this installation and this shell that go into a service.

A service starts without the shell's variables. So the variables that locate files are passed on by
name. Otherwise the service would serve other files than the commands of this shell use.
"""

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetd.host import paths
from fleetd.protocol.errors import InvalidState

from ..integrations.installation import run_program, this_interpreter

if TYPE_CHECKING:
    from fleetd.config import Config

# Variables that move fleetd's files. The store's name may contain a password, so it is left out.
STORE = "FLEET_DATABASE_URL"
PLACES = ("FLEET_DB_PATH", "FLIGHTLINE_DIR", "FLEET_CONFIG", "FLEET_SOCKET")
XDG = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
USUAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_TRY_S = 30


class ServiceSpec(NamedTuple):
    """What a service needs to know; ``socket`` is None for the platform's default.

    ``networked`` means that its store is reached over the network. ``omitted_variables`` names
    FLEET_* variables of this shell that are not passed on.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    socket: Path | None
    writable: tuple[Path, ...]
    omitted_variables: tuple[str, ...]
    networked: bool = False


def this_spec() -> ServiceSpec:
    """Return the parts of a service of this installation; raises InvalidState.

    That happens when the settings are invalid, or when the interpreter cannot run fleetd.
    """
    config = _settings()
    words = command()
    environment = {"PATH": _path(), **places(), **_python_path(words[0])}
    own = {name: value for name, value in os.environ.items() if name != "FLEET_SOCKET"}
    variables = {name for name in os.environ if name.startswith("FLEET_")}
    known = {*PLACES, "FLEET_AGENT_ID", "FLEET_MISSION_ID"}
    moved = config.socket != paths.socket_path(own)
    if not moved:
        environment.pop("FLEET_SOCKET", None)
    return ServiceSpec(
        command=words,
        environment=environment,
        socket=config.socket if moved else None,
        writable=_unnested([config.database.parent, paths.state_path(), config.checkpoints]),
        omitted_variables=tuple(sorted(variables - known)),
        networked=networked(config.store),
    )


def _settings() -> "Config":
    """Return the settings that a service will also have; raises InvalidState if they differ.

    A service that did not know the store of this shell's commands would create another one.
    """
    # Imported here: commands that only ask what runs need no settings.
    from fleetd.config import ConfigError, load

    try:
        here = load()
        alone = load({name: value for name, value in os.environ.items() if name != STORE})
    except ConfigError as error:
        raise InvalidState(str(error), hint="Correct the value, then try again.") from error
    if here.config.store != alone.config.store:
        raise InvalidState(
            f"The store is named by {STORE} of this shell, which a service does not see.",
            hint=f"Write it into {here.file} (store = ..., chmod 600 where it has a password), "
            "and not into a unit, which others may read. Then try again.",
        )
    return here.config


def networked(store: str) -> bool:
    """Return whether a store is on a server that is not reached by a Unix socket alone."""
    from urllib.parse import parse_qs, unquote, urlsplit

    if not store:
        return False
    if "://" not in store:  # words such as host=... dbname=...
        hosts = re.findall(r"\bhost(?:addr)?\s*=\s*'?([^'\s]+)", store)
        named = "service" in store
    else:
        parts = urlsplit(store)
        given = parse_qs(parts.query)
        at = parts.netloc.rpartition("@")[2]
        hosts = [at, *given.get("host", []), *given.get("hostaddr", [])]
        named = "service" in given
    each = (unquote(host) for several in hosts for host in several.split(","))
    return named or any(host and not host.startswith(("/", "@")) for host in each)


def command() -> tuple[str, ...]:
    """Return the command that runs fleetd; modules in its working directory are ignored.

    It names the interpreter itself: a script could be a shim that searches for it every time.
    """
    return (this_interpreter("service"), "-P", "-m", "fleetd")


def places() -> dict[str, str]:
    """Return this shell's variables that move files, as absolute paths: fleetd starts elsewhere."""
    found = {}
    for name in (*PLACES, *XDG):
        value = os.environ.get(name)
        if value and (name in PLACES or Path(value).is_absolute()):
            path = paths.of_socket(value) if name == "FLEET_SOCKET" else Path(value).expanduser()
            # Links stay links.
            found[name] = os.path.abspath(path)  # noqa: PTH100
    return found


def _path() -> str:
    """Return the search path for programs: the usual directories, and that of git."""
    git = shutil.which("git")
    where = os.path.dirname(os.path.abspath(git)) if git else ""  # noqa: PTH100, PTH120
    return ":".join([*([where] if where and where not in USUAL_PATH else []), *USUAL_PATH])


def _python_path(interpreter: str) -> dict[str, str]:
    """Return the variables with which the interpreter finds fleetd; mostly none."""
    bare = {"HOME": str(Path.home()), "PATH": _path()}
    wanted: list[dict[str, str]] = [{}]
    if given := os.environ.get("PYTHONPATH"):
        made = os.pathsep.join(map(os.path.abspath, given.split(os.pathsep)))
        wanted.append({"PYTHONPATH": made})
    error = ""
    for each in wanted:
        words = [interpreter, "-P", "-c", "import fleetd"]
        done = run_program(words, env=bare | each, cwd="/", timeout_s=_TRY_S)
        if done.returncode == 0:
            return each
        error = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    raise InvalidState(
        f"{interpreter} cannot run fleetd: {error}.",
        hint="Install fleetd into the environment of this fleetctl, then try again.",
    )


def _unnested(directories: list[Path]) -> tuple[Path, ...]:
    """Return the directories without those inside another one."""
    kept = dict.fromkeys(directories)
    return tuple(
        each
        for each in kept
        if not any(other != each and each.is_relative_to(other) for other in kept)
    )
