"""Statistics from the log, read agent by agent and page by page."""

from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.stats import compactions
from ...protocol.requests.stats import RecoveryStats, StatsRecovery
from ...protocol.timestamps import iso
from ..engine import Engine


@method(StatsRecovery, slow=True)
async def recovery(engine: Engine, request: StatsRecovery, caller: Caller) -> RecoveryStats:
    """Compare what agents did after compactions, with a briefing and without."""
    now, tally = iso(engine.clock()), compactions.Tally(request)
    for span in await engine.read(compactions.find_spans, request.since_time):
        story = compactions.Story(span.agent_id)
        position = await engine.read(compactions.start_of, span)
        while rows := await engine.read(compactions.next_events, span, position):
            for row in rows:
                story.process(row)
            position = rows[-1]["seq"]
        tally.add(story.effects(span, now))
    return tally.stats()
