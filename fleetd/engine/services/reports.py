"""Reports, collected from the log batch by batch."""

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.report import collect
from ...domain.report.story import Story
from ...protocol.requests.report import Report, ReportGet
from ..engine import Engine


@method(ReportGet, slow=True)
async def get(engine: Engine, request: ReportGet, caller: Caller) -> Report:
    """Report what an agent or a mission was asked, did, decided and left open."""
    subject = await engine.read(collect.find_subject, request)
    story = Story()
    for place in subject.places:
        position = 0
        while rows := await engine.read(collect.next_events, subject, place, position):
            for row in rows:
                story.process(row)
            position = rows[-1]["seq"]
    return await engine.read(collect.finish, subject, story)
