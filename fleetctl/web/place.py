"""The place where the server listens; imports nothing, since help and the service need it too."""

from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidParams

PORT = 8722
HOSTS = {"127.0.0.1": "127.0.0.1", "::1": "[::1]", "localhost": "127.0.0.1"}
"""The addresses that the server may listen on, each as an URL has it."""


class Place(NamedTuple):
    """A port of an address, or a Unix socket."""

    host: str = "127.0.0.1"
    port: int = PORT
    socket: Path | None = None

    @property
    def url(self) -> str:
        """Return the address of the page, as a browser on this computer or behind ssh has it."""
        return f"http://{HOSTS[self.host]}:{self.port or PORT}/"

    @property
    def ssh(self) -> str:
        """Return the command that leads to it from another computer."""
        port = self.port or PORT
        return f"ssh -L {port}:{self.socket or f'{HOSTS[self.host]}:{port}'} HOST"


def checked_place(host: str, port: int, socket: str | None) -> Place:
    """Return a place that other computers do not reach; raises InvalidParams for another."""
    if host not in HOSTS:
        raise InvalidParams(
            f"fleetctl web listens on this computer only: 127.0.0.1, ::1 or localhost, not {host}.",
            hint=f"From another computer: {Place().ssh}",
        )
    # Links stay links.
    return Place(host, port, Path(socket).expanduser().absolute() if socket else None)
