"""The place where the server listens; imports little, since help and the service need it too."""

from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidParams

PORT = 8722
HOSTS = {"127.0.0.1": "127.0.0.1", "::1": "[::1]", "localhost": "127.0.0.1"}
"""The addresses that the server may listen on, each in the form of a URL."""


class Place(NamedTuple):
    """A port of an address, or a Unix socket."""

    host: str = "127.0.0.1"
    port: int = PORT
    socket: Path | None = None

    @property
    def url(self) -> str:
        """Return the URL of the page for a browser on this computer or behind ssh."""
        return f"http://{HOSTS[self.host]}:{self.port or PORT}/"

    @property
    def ssh(self) -> str:
        """Return the command that reaches the server from another computer."""
        port = self.port or PORT
        return f"ssh -L {port}:{self.socket or f'{HOSTS[self.host]}:{port}'} HOST"


def checked_place(host: str, port: int, socket: str | None) -> Place:
    """Return a place that other computers cannot reach; raises InvalidParams for any other."""
    if host not in HOSTS:
        raise InvalidParams(
            f"fleetctl web listens on this computer only: 127.0.0.1, ::1 or localhost, not {host}.",
            hint=f"From another computer: {Place().ssh}",
        )
    # Symbolic links are not resolved.
    return Place(host, port, Path(socket).expanduser().absolute() if socket else None)
