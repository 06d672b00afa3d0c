"""The command ``fleetd``: arguments, settings, then the daemon."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, get_args

import msgspec

from . import __version__, config
from .domain.redaction.redact import redact
from .host import trace
from .protocol.display import escaped

_EXIT_REFUSED = 78
_LEVELS = get_args(config.LogLevel)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fleetd`` in the foreground; return its exit status."""
    # First of all: other users must not be able to read what is created from here on.
    os.umask(0o077)
    options = parser().parse_args(arguments)
    trace.configure("INFO", redact)
    try:
        loaded = _load(options.log_level)
    except config.ConfigError as error:
        logging.getLogger(__package__).error("%s", error)
        return _EXIT_REFUSED
    trace.configure(loaded.config.log_level, redact)
    if options.restore is not None:
        from .engine.offline import restore_command

        return restore_command.run(
            loaded, options.restore.absolute(), preview=options.preview, as_json=options.json
        )
    if options.migrate:
        from .engine.offline import migrate_command as transferring

        return transferring.run(loaded)
    from . import daemon  # not earlier: --help and --version need none of it

    return daemon.start(loaded)


class Parser(argparse.ArgumentParser):
    """A parser whose errors contain nothing that a terminal would interpret."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit."""
        super().error(escaped(message))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = Parser(
        prog="fleetd",
        description="Remembers for fleets of AI coding agents. Runs in the foreground; "
        "SIGTERM stops it properly.",
        epilog="Settings come from config.toml and FLEET_* variables; fleetctl config shows them.",
    )
    parser.add_argument("--version", action="version", version=f"fleetd {__version__}")
    parser.add_argument("--log-level", choices=_LEVELS, type=str.upper, help="how much to log")
    parser.add_argument(
        "--restore",
        metavar="FILE",
        type=Path,
        help="replace the database with a copy and exit (better: fleetctl restore)",
    )
    parser.add_argument("--migrate", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--preview", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    return parser


def _load(log_level: str | None) -> config.Loaded:
    loaded = config.load()
    if log_level is None:
        return loaded
    chosen = msgspec.structs.replace(loaded.config, log_level=log_level)
    origins = {**loaded.origins, "log_level": "option --log-level"}
    return msgspec.structs.replace(loaded, config=chosen, origins=origins)


if __name__ == "__main__":
    sys.exit(main())
