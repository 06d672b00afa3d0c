"""Events are told in the words of the command line."""

from pathlib import Path

import msgspec

from fleetctl.client import Fleet
from fleetctl.output.events import sentence
from fleetd.protocol.records import Event
from tests.web.conftest import Open
from tests.web.filled import fill


def test_the_page_tells_events_as_commands_do(open_page: Open, fleet: Fleet, project: Path) -> None:
    fill(fleet, project, "Write the form")
    events = fleet.call_raw("event.list", {"limit": 1000})["events"]
    page = open_page()
    told = page.evaluate(
        "events => import('/static/events.js').then(module => events.map(module.sentence))", events
    )
    for event, shown in zip(events, told, strict=True):
        assert shown == sentence(msgspec.convert(event, Event)), event
