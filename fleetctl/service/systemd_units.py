"""The units of systemd with the paths of one installation in them; must not write or run anything.

The texts are those in ``systemd/`` of the repository. Only what names a place is replaced.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from .setup import Setup
from .unit_files import marked

SERVICE, SOCKET = "fleetd.service", "fleetd.socket"
SYNCED = "fleetd-synced.conf"
_UNITS = Path(__file__).with_name("units")
_DEFAULT_SOCKET = "%t/fleet/fleetd.sock"


def rendered(setup: Setup) -> dict[str, str]:
    """Return the text of each unit for an installation."""
    listen = _DEFAULT_SOCKET if setup.socket is None else _literal(str(setup.socket))
    runtime = str(Path(listen).parent)
    directories = [_word(str(each)) for each in setup.writable]
    program = "+/usr/bin/env mkdir -p -m 0700"
    service = _replaced(
        _source(SERVICE),
        {
            "ExecStart": [" ".join(_argument(word) for word in setup.command)],
            "Environment": [_word(f"{name}={value}") for name, value in setup.environment.items()],
            "ExecStartPre": [" ".join([program, *map(_argument, map(str, setup.writable))])],
            "ReadWritePaths": [
                f"-{each}"
                for each in (_quoted(runtime, literal=setup.socket is None), *directories)
            ],
        },
    )
    socket = _replaced(_source(SOCKET), {"ListenStream": [listen]})
    return {SERVICE: marked(service, "# "), SOCKET: marked(socket, "# ")}


def drop_in() -> str:
    """Return the text of what a service adds whose store is reached over the network."""
    return marked(_source(SYNCED, "[Service]"), "# ")


def _source(name: str, begin: str = "[Unit]") -> str:
    """Return the text of a unit from its first section on; the rest is about the source."""
    text = (_UNITS / name).read_text("utf-8")
    return text[text.index(begin) :]


def _replaced(text: str, settings: dict[str, list[str]]) -> str:
    """Return a unit's text in which each setting has other values, where its first one stood."""
    lines, done = [], set()
    for line in text.splitlines():
        key, equals, _value = line.partition("=")
        if not equals or key not in settings:
            lines.append(line)
        elif key not in done:
            done.add(key)
            lines += [f"{key}={value}" for value in settings[key]]
    if missing := settings.keys() - done:
        raise AssertionError(f"the unit has no {missing}")
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """Return a text in which systemd finds nothing to fill in."""
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Return a text as one word, with nothing in it to fill in."""
    return _quoted(_literal(text), literal=False)


def _quoted(text: str, *, literal: bool) -> str:
    if literal or not set(text) & set(" \t\"'\\;#"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _argument(text: str) -> str:
    """Return a text as one word of a command line, in which no variable is filled in."""
    return _word(text.replace("$", "$$"))


def shown(texts: Iterable[str]) -> Sequence[str]:
    """Return the lines of units that differ from one installation to the next."""
    told = ("ListenStream=", "ExecStart=", "Environment=", "ReadWritePaths=", "RestrictAddress")
    return [line for text in texts for line in text.splitlines() if line.startswith(told)]
