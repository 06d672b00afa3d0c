"""Launcher: the small program that settings of agent CLIs name, and that starts the hook client.

Its path is short and stays the same when fleetd is upgraded or moved. It runs the compiled client,
or the Python client if that is gone, and never fails its agent.
"""

import os
from contextlib import suppress
from pathlib import Path

from fleetd.host import paths
from fleetd.protocol.errors import Storage

from . import config_file

# How its path ends, whatever the directory is.
ENDING = f"/fleet/{paths.LAUNCHER}"
MODE = 0o700

# No retry after a killed client: it has read the input, and the other client would get none.
# Antigravity takes an empty answer for a failure, so the launcher prints an empty object there.
_TEXT = """\
#!/bin/sh
# fleetd's launcher of its hook client. "fleetctl hooks install" writes it.
run() {{
  {compiled}{python} "$@"
}}
exec 2>/dev/null
if [ "$1" = antigravity ]; then
  said=$(run "$@")
  [ -n "$said" ] || said='{{}}'
  printf '%s\\n' "$said"
else
  run "$@"
fi
exit 0
"""
_COMPILED = """if [ -x {program} ]; then
    {assignments}{program} "$@"
    case $? in 126 | 127) ;; *) return ;; esac
  fi
  """


def path() -> Path:
    """Return where the launcher of this user is."""
    return paths.data_path() / paths.LAUNCHER


def text(compiled: str, python: str, assignments: str) -> str:
    """Return the launcher's text for programs that are given as shell words.

    ``compiled`` is empty where there is none.
    """
    first = _COMPILED.format(program=compiled, assignments=assignments) if compiled else ""
    return _TEXT.format(compiled=first, python=assignments + python)


def read(place: str) -> str:
    """Return the text of a launcher, empty where there is none to read."""
    try:
        return Path(place).read_text("utf-8")
    except (OSError, UnicodeError):
        return ""


def is_current(wanted: str) -> bool:
    """Return whether the launcher exists, is executable, and has the wanted text."""
    place = path()
    return read(str(place)) == wanted and os.access(place, os.X_OK)


def write(wanted: str) -> None:
    """Write the launcher, unless it is current; raises Storage."""
    if is_current(wanted):
        return
    place = path()
    try:
        place.parent.mkdir(mode=MODE, parents=True, exist_ok=True)
        with config_file.opened(place.parent.resolve()) as above:
            config_file.put(above, place.name, wanted.encode(), MODE)
    except OSError as error:
        raise Storage(
            f"{place} cannot be written: {error.strerror}.", hint="Nothing was changed."
        ) from error


def remove() -> None:
    """Remove the launcher; hooks that still name it then do nothing."""
    with suppress(OSError):
        path().unlink()
