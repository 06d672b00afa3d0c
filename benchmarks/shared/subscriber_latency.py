"""The time from a commit to its notification, on the same machine and on another."""

import msgspec

from ..fleet import Fleet
from ..growth.listening import Audience
from ..measure import Samples, timed
from .asking import DATA


class SubscriberLatency(msgspec.Struct, frozen=True):
    """The times from a request to a subscriber's event, in ms, and to the request's reply."""

    where: str
    heard: Samples
    answered: Samples


def measure_latency(where: str, sender: Fleet, receiver: Fleet, events: int) -> SubscriberLatency:
    """Append events one by one at one daemon, while a subscriber of another listens."""
    mission = sender.mission(1)
    received, answered = Samples([]), Samples([])
    since = sender.call("system.status")["position"]

    def append() -> None:
        sender.call("event.append", type="file_read", mission_id=mission, data=DATA)

    with Audience(receiver.socket, 1, since) as audience:
        append()
        audience.wait_for_lines(1)
        for _ in range(events):
            took = timed(append)
            answered.times_ms.append(took)
            received.times_ms.append(took + timed(lambda: audience.wait_for_lines(1)))
    return SubscriberLatency(where, received, answered)
