"""The configuration's file: who may write it, its TOML, and the directories it names.

What the settings are, and which win, is not known here.
"""

import os
import re
import stat
from pathlib import Path
from typing import Any

from .host import permissions

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/~-]{0,199}")


class ConfigError(Exception):
    """A setting is wrong; the text names the key, the value and what is allowed."""


def read_file(file: Path) -> dict[str, Any]:
    """Return what the file says, nothing for one that is not there; raises ConfigError."""
    try:
        with open(file, "rb", opener=_at_once) as opened:
            info = os.fstat(opened.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise ConfigError(
                    f"The configuration file {file} is no regular file; move it away."
                )
            _refuse_others(file, info)
            return _toml(opened.read().decode(), file)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {file} cannot be read: {error}") from error


def _at_once(path: str, flags: int) -> int:
    """Open without waiting: a pipe would wait for somebody who writes into it, for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _toml(text: str, file: Path) -> dict[str, Any]:
    # Imported here: most have no such file, and commands ask for the settings too.
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The configuration file {file} is not TOML: {error}") from error


def _refuse_others(file: Path, info: os.stat_result) -> None:
    """Refuse a file that somebody else may change or exchange: it says where everything lies."""
    if problem := permissions.of_file(info):
        raise ConfigError(
            f"The configuration file {file} {problem}. It names the store. Run: chmod go-w {file} "
            "- or use a file of your own."
        )
    if weak := permissions.way_problem(file):
        raise ConfigError(
            f"The configuration file {file} is reached by {weak[0]}, which {weak[1]}. Somebody "
            f"else could put another file in its place, and it names the store. Run: chmod go-w "
            f"{weak[0]} - or set FLEET_CONFIG to a file in a directory of your own."
        )


def fill_ignored(tree: dict[str, Any], file: Path) -> None:
    """Make the ignored directories real paths; a request's directories are compared with them."""
    given = tree.get("project_ignore", [])
    tree["project_ignore"] = [_real(each, "project_ignore", file) for each in given]


def _real(given: str, key: str, file: Path) -> str:
    """Return a directory of the settings as a real path; raises ConfigError for what is none."""
    # Not Path.expanduser, which fails for a user that is not there.
    path = os.path.expanduser(given)  # noqa: PTH111
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(
            f"Setting {key} in {file} has {given!r}: give a list of directories, each an absolute "
            "path, or one that begins with ~/."
        )
    return os.path.realpath(path)


def fill_projects(tree: dict[str, Any], file: Path) -> None:
    """Make the directories of named projects real paths; raises ConfigError.

    Called before the settings get their types: an error there would not say which name it means.
    """
    given = tree.get("projects", {})
    if not isinstance(given, dict):
        raise ConfigError(
            f"Setting projects is {given!r} in {file}: give a section, [projects], with a line "
            'name = ["/directory", ...] for each.'
        )
    whose: dict[str, str] = {}
    for name, directories in given.items():
        key = f"projects.{name}"
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"Setting {key} in {file}: {name!r} names no project. A name has up to 200 "
                "letters, digits and . _ : / ~ -, and begins with a letter or a digit."
            )
        given[name] = [_real(each, key, file) for each in _texts(directories, key, file)]
        for directory in given[name]:
            if whose.setdefault(directory, name) != name:
                raise ConfigError(
                    f"Setting {key} in {file} has {directory!r}, which projects.{whose[directory]} "
                    "has already: a directory belongs to one project."
                )


def _texts(given: Any, key: str, file: Path) -> list[str]:
    """Return a list of texts; raises ConfigError for anything else."""
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return given
    quoted = " Put a name with dots in quotes." if isinstance(given, dict) else ""
    raise ConfigError(
        f"Setting {key} is {given!r} in {file}: give a list of directories, each an absolute path, "
        f"or one that begins with ~/.{quoted}"
    )
