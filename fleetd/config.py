"""The daemon's settings, from defaults, a TOML file and the environment.

Every value records its origin, so that ``fleetctl config`` can show it. A wrong value stops the
start with a message that names the key, the value and what is allowed.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, field

from .host import paths, permissions
from .protocol.requests.system import Setting

Positive = Annotated[int, Meta(ge=1)]
Ms = Annotated[int, Meta(ge=1, le=30 * 86_400_000)]
Days = Annotated[int, Meta(ge=0, le=36_500)]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
_PROJECT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/~-]{0,199}")


class ConfigSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the sections of the file."""


class PathSettings(ConfigSection, frozen=True, kw_only=True):
    """Where the daemon keeps its files; an empty value means the default."""

    database: str = ""
    checkpoints: str = ""
    socket: str = ""


class Limits(ConfigSection, frozen=True, kw_only=True):
    """How much a client may send, and how long it may take."""

    line_bytes: Annotated[int, Meta(ge=1_024, le=64 * 1024 * 1024)] = 1024 * 1024
    depth: Annotated[int, Meta(ge=4, le=500)] = 64
    batch: Positive = 50
    connections: Positive = 256
    requests_in_flight: Positive = 32
    line_timeout_ms: Ms = 5_000
    reply_timeout_ms: Ms = 10_000
    checkpoints_per_mission: Annotated[int, Meta(ge=4)] = 100
    checkpoint_bytes: Annotated[int, Meta(ge=10_000)] = 1_000_000


class Retention(ConfigSection, frozen=True, kw_only=True):
    """How long records are kept."""

    days: Days = 7
    keep: Positive = 3
    completed_days: Days = 30
    event_days: Days = 30
    usage_days: Days = 90
    # Snapshots: how many are kept of each run, for how many days, and when they are compressed (0:
    # never). The latest failed and the latest completed snapshot of a run stay.
    snapshots_per_run: Annotated[int, Meta(ge=1, le=10_000)] = 50
    snapshot_days: Days = 14
    snapshot_gzip_hours: Annotated[int, Meta(ge=0, le=24 * 36_500)] = 24


class DetectionSettings(ConfigSection, frozen=True, kw_only=True):
    """When a mission counts as silent."""

    threshold_ms: Ms = 300_000


class Locks(ConfigSection, frozen=True, kw_only=True):
    """How long a lease lasts by default, and whether edits take one automatically."""

    lease_ms: Ms = 600_000
    automatic: bool = False
    automatic_ms: Ms = 300_000
    """How long the lease of an edit lasts."""


class Prompt(ConfigSection, frozen=True, kw_only=True):
    """How long a briefing may be."""

    max_chars: Annotated[int, Meta(ge=500, le=9_500)] = 9_500


class Hooks(ConfigSection, frozen=True, kw_only=True):
    """What sessions of agent CLIs get automatically, and how much their hooks may send."""

    auto_missions: bool = True
    # For hook.deliver only: an edit contains the whole file.
    line_bytes: Annotated[int, Meta(ge=1_024, le=64 * 1024 * 1024)] = 16 * 1024 * 1024


class Config(ConfigSection, frozen=True, kw_only=True):
    """Every setting of the daemon."""

    log_level: LogLevel = "INFO"
    project_ignore: list[str] = []
    """Directories, as real paths, of which nothing is recorded."""
    store: str = ""
    """A PostgreSQL URL, for a store that several machines share; empty for a store of its own."""
    machine_name: Annotated[str, Meta(max_length=64, pattern=r"^[\w.@-]*$")] = ""
    """The name of this machine in a shared store; empty for the name of the computer."""
    # False: fleetd records that a prompt was submitted, but not its text.
    keep_prompts: bool = True
    projects: dict[str, list[str]] = {}
    """Names of projects on every machine of a shared store: directories by name."""
    paths: PathSettings = field(default_factory=PathSettings)
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    detection: DetectionSettings = field(default_factory=DetectionSettings)
    locks: Locks = field(default_factory=Locks)
    prompt: Prompt = field(default_factory=Prompt)
    hooks: Hooks = field(default_factory=Hooks)

    @property
    def database(self) -> Path:
        """Return the database file."""
        return Path(self.paths.database)

    @property
    def checkpoints(self) -> Path:
        """Return the directory of checkpoint files."""
        return Path(self.paths.checkpoints)

    @property
    def socket(self) -> Path:
        """Return the path of the socket."""
        return Path(self.paths.socket)


class Loaded(msgspec.Struct, frozen=True):
    """A configuration and where each of its values came from."""

    config: Config
    origins: dict[str, str]
    file: Path
    spool: Path | None = None
    """Where the hook client leaves events. This is no setting: the hook client reads none."""

    def settings(self) -> list[Setting]:
        """Return every value with its origin, in the order of the sections."""
        flat = flatten(msgspec.to_builtins(self.config))
        flat["store"] = without_password(flat["store"])
        return [
            Setting(key=key, value=value, origin=self.origins.get(key, "default"))
            for key, value in flat.items()
        ]


_ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "FLEET_LOG_LEVEL": ("log_level",),
    "FLEET_DB_PATH": ("paths", "database"),
    "FLEET_DATABASE_URL": ("store",),
    "FLIGHTLINE_DIR": ("paths", "checkpoints"),
    "FLEET_SOCKET": ("paths", "socket"),
    "FLEET_ACTIVITY_THRESHOLD_MS": ("detection", "threshold_ms"),
}


def load(env: Mapping[str, str] = os.environ) -> Loaded:
    """Read file and environment; raises ConfigError for an invalid value."""
    file = paths.config_path(env)
    tree = read_file(file)
    origins = dict.fromkeys(flatten(tree), f"file {file}")
    fill_projects(tree, file)
    _convert(tree, f"in {file}")
    for variable, where in _ENVIRONMENT.items():
        if text := env.get(variable):
            section = tree if len(where) == 1 else tree.setdefault(where[0], {})
            section[where[-1]] = _environment_value(variable, text)
            origins[".".join(where)] = f"environment {variable}"
    _fill_paths(tree, env)
    fill_ignored(tree, file)
    return Loaded(_convert(tree, "in the environment"), origins, file, paths.spool_path())


def _environment_value(variable: str, text: str) -> Any:
    if variable == "FLEET_ACTIVITY_THRESHOLD_MS":
        try:
            return int(text)
        except ValueError:
            raise ConfigError(
                f"FLEET_ACTIVITY_THRESHOLD_MS is {text!r}. Give a whole number of "
                "milliseconds, at least 1."
            ) from None
    return text.upper() if variable == "FLEET_LOG_LEVEL" else text


def _fill_paths(tree: dict[str, Any], env: Mapping[str, str]) -> None:
    """Complete the paths: the environment's, else the file's, else the platform's."""
    section = tree.setdefault("paths", {})
    if env.get("FLIGHTLINE_DIR") or not section.get("checkpoints"):
        section["checkpoints"] = str(paths.checkpoints_path(env))
    if not section.get("database"):
        section["database"] = str(paths.database_path(env))
    if not section.get("socket"):
        section["socket"] = str(paths.socket_path(env))
    for name, value in section.items():
        path = paths.of_socket(value) if name == "socket" else Path(value).expanduser()
        if not path.is_absolute():
            # A relative path would depend on the current directory of each start.
            raise ConfigError(f"Setting paths.{name} is {value!r}: give an absolute path.")
        section[name] = str(path)


def _convert(tree: dict[str, Any], where: str) -> Config:
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        # Imported here, since settings are usually valid.
        from .protocol import validation

        problem, key = validation.split(str(error))
        value = flatten(tree).get(key.partition("[")[0])
        value_text = without_password(repr(value)) if key.startswith("store") else repr(value)
        shown = f"{key} is {value_text}" if value is not None else key or "names"
        variable = next((v for v, at in _ENVIRONMENT.items() if ".".join(at) == key), None)
        source = f"{where} ({variable})" if variable and "environment" in where else where
        if problem.startswith("Invalid enum value"):
            why = f"expected one of {', '.join(get_args(LogLevel))}"
        elif problem.startswith("Object contains unknown field"):
            kind = type(getattr(Config(), key)) if key else Config
            known = ", ".join(kind.__struct_fields__)
            name = problem.partition("`")[2].rstrip("`")
            why = f"there is no setting {name} here. The settings are: {known}"
        else:
            why = f"expected {validation.expected(problem)}"
        raise ConfigError(f"Setting {shown} {source}: {why}.") from error


# Patterns as text: most readers of settings do not need them compiled. In a connection string
# without a URL, an ampersand is part of the value.
_OPTION = r"(?s)([\w%]+)(\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^&\s\\]|\\.)+)"
_WORD = _OPTION.replace("[^&", "[^")


def without_password(url: str) -> str:
    """Return a store's URL without its secrets, so that it can be shown.

    This includes an invalid URL: up to the last @, text after a name and a colon may be a password.
    """
    shown = re.sub(r"(?s)(://[^:/?#@]*):.*@", r"\1:***@", url)
    return re.sub(_OPTION if "://" in url else _WORD, _masked, shown)


def _masked(option: re.Match[str]) -> str:
    name = re.sub(r"%([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), option[1]).lower()
    secret = "password" in name or "secret" in name
    return f"{option[1]}{option[2]}***" if secret else option[0]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested sections into dotted keys: ``{"a": {"b": 1}}`` -> ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


class ConfigError(Exception):
    """A setting is wrong; the text names the key, the value and what is allowed."""


def read_file(file: Path) -> dict[str, Any]:
    """Return the content of the file, empty for a missing file; raises ConfigError."""
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            info = os.fstat(opened.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise ConfigError(
                    f"The configuration file {file} is not a regular file. Move it away."
                )
            _refuse_others(file, info)
            return _toml(opened.read().decode(), file)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {file} cannot be read: {error}") from error


def _without_waiting(path: str, flags: int) -> int:
    """Open without waiting: opening a pipe would wait for a writer forever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _toml(text: str, file: Path) -> dict[str, Any]:
    # Imported here: most users have no such file, and commands read the settings too.
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The configuration file {file} is not TOML: {error}") from error


def _refuse_others(file: Path, info: os.stat_result) -> None:
    """Refuse a file that another user may change or replace: it says where everything is."""
    if problem := permissions.of_file(info):
        raise ConfigError(
            f"The configuration file {file} {problem}. It names the store. Run: chmod go-w {file} "
            "- or use a file of your own."
        )
    if weak := permissions.way_problem(file):
        raise ConfigError(
            f"The configuration file {file} is reached by {weak[0]}, which {weak[1]}. Another "
            f"user could put another file in its place, and it names the store. Run: chmod go-w "
            f"{weak[0]} - or set FLEET_CONFIG to a file in a directory of your own."
        )


def fill_ignored(tree: dict[str, Any], file: Path) -> None:
    """Make the ignored directories real paths; a request's directories are compared with them."""
    given = tree.get("project_ignore", [])
    tree["project_ignore"] = [_real(each, "project_ignore", file) for each in given]


def _real(given: str, key: str, file: Path) -> str:
    """Return a directory of the settings as a real path; raises ConfigError for an invalid one."""
    # Not Path.expanduser, which fails for an unknown user.
    path = os.path.expanduser(given)  # noqa: PTH111
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(
            f"Setting {key} in {file} has {given!r}: give a list of directories, each an absolute "
            "path, or one that begins with ~/."
        )
    return os.path.realpath(path)


def fill_projects(tree: dict[str, Any], file: Path) -> None:
    """Make the directories of named projects real paths; raises ConfigError.

    Called before the settings are converted: an error there would not name the project.
    """
    given = tree.get("projects", {})
    if not isinstance(given, dict):
        raise ConfigError(
            f"Setting projects is {given!r} in {file}: give a section, [projects], with a line "
            'name = ["/directory", ...] for each.'
        )
    owners: dict[str, str] = {}
    for name, directories in given.items():
        key = f"projects.{name}"
        if not _PROJECT_NAME.fullmatch(name):
            raise ConfigError(
                f"Setting {key} in {file}: {name!r} is not a valid project name. Use up "
                "to 200 characters of A-Z, a-z, 0-9 and . _ : / ~ -, the first of A-Z, a-z, 0-9."
            )
        given[name] = [_real(each, key, file) for each in _texts(directories, key, file)]
        for directory in given[name]:
            if owners.setdefault(directory, name) != name:
                raise ConfigError(
                    f"Setting {key} in {file} has {directory!r}, which "
                    f"projects.{owners[directory]} already has. A directory belongs to one project."
                )


def _texts(given: Any, key: str, file: Path) -> list[str]:
    """Return a list of strings; raises ConfigError for anything else."""
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return given
    quoted = " Put a name with dots in quotes." if isinstance(given, dict) else ""
    raise ConfigError(
        f"Setting {key} is {given!r} in {file}: give a list of directories, each an absolute path, "
        f"or one that begins with ~/.{quoted}"
    )
