"""Ledger: the reported states, kept over restarts of ``fleetctl notify run``.

There is one for each set of channels. It is only a convenience: without it, a state that still
holds is reported once more.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from fleetd.host import paths
from fleetd.protocol.errors import FleetError

from ..integrations import config_file
from .due import Key
from .options import NotifyOptions

MOST = 500


class Ledger:
    """The file of the states that were reported over some channels."""

    def __init__(self, options: NotifyOptions) -> None:
        channels = [options.shows_desktop, options.command, options.webhook, options.apprise]
        digest = hashlib.sha256(msgspec.json.encode(channels)).hexdigest()[:16]
        self.path = directory() / f"{digest}.json"

    def read(self) -> list[Key]:
        """Return the reported states; nothing when they cannot be read."""
        with suppress(FleetError, msgspec.MsgspecError):
            return msgspec.json.decode(config_file.read(self.path).data or b"[]", type=list[Key])
        return []

    def write(self, reported: list[Key]) -> bool:
        """Write the reported states; return whether that succeeded."""
        data = msgspec.json.encode(reported[-MOST:])
        try:
            with config_file.opened(self.path.parent, make=0o700) as above:
                config_file.put(above, self.path.name, data, 0o600)
        except (OSError, FleetError):
            return False
        return True


def directory() -> Path:
    """Return the directory of the ledgers, by its real path."""
    return Path(os.path.realpath(paths.state_path())) / "notify"
