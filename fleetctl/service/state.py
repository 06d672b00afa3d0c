"""What is known about a service, whoever runs it; must not ask anybody."""

from collections.abc import Sequence
from typing import NamedTuple


class State(NamedTuple):
    """How a service stands. ``manager`` tells whether the program that runs services runs itself.

    ``enabled`` means that it starts by itself, ``listening`` that its first client starts it;
    ``lingering`` that it stays when its user is not logged in. None where that is not known.
    """

    kind: str
    manager: bool
    installed: bool
    files: Sequence[str] = ()
    enabled: bool | None = None
    active: bool = False
    listening: bool = False
    condition: str = ""
    lingering: bool | None = None
    log: str = ""
