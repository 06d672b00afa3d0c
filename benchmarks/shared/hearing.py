"""The time from a commit to its notification, on the same machine and on another."""

import msgspec

from ..fleet import Fleet
from ..growth.listening import Audience
from ..measure import Samples, timed
from .asking import DATA


class Heard(msgspec.Struct, frozen=True):
    """The times from a request to a subscriber's event, in ms, and to the request's reply."""

    where: str
    heard: Samples
    answered: Samples


def hearing(where: str, tells: Fleet, hears: Fleet, events: int) -> Heard:
    """Append events one by one at one daemon, while a subscriber of another listens."""
    mission = tells.mission(1)
    received, answered = Samples([]), Samples([])
    since = tells.call("system.status")["position"]

    def append() -> None:
        tells.call("event.append", type="file_read", mission_id=mission, data=DATA)

    with Audience(hears.socket, 1, since) as audience:
        append()
        audience.hear(1)
        for _ in range(events):
            took = timed(append)
            answered.times_ms.append(took)
            received.times_ms.append(took + timed(lambda: audience.hear(1)))
    return Heard(where, received, answered)
