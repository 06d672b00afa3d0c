"""Usage of tokens: reads what is outstanding first, then sums up records page by page."""

import re
import zoneinfo
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from ...domain.core.context import Caller
from ...domain.core.ids import resolve_id
from ...domain.core.registry import method
from ...domain.usage import budgets, records, report, transcripts
from ...domain.usage.report import Filter, Tally
from ...protocol.errors import InvalidParams
from ...protocol.requests.usage import UsageGet, UsageReport
from ...protocol.timestamps import iso
from ..engine import Engine
from ..usage.reading import read_soon

READING_S = 5.0
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")


@method(UsageGet, slow=True)
async def get_report(engine: Engine, request: UsageGet, caller: Caller) -> UsageReport:
    """Read the new parts of transcripts, and count tokens."""
    day_of = _days(request.time_zone)
    mission_id, agent_id = request.mission_id, request.agent_id
    if mission_id is not None:
        mission_id = await engine.read(resolve_id, "mission", mission_id)
    if agent_id is not None and not await engine.read(report.is_agent, agent_id):
        agent_id = await engine.read(resolve_id, "agent", agent_id)
    wanted = Filter(
        since_time=request.since_time,
        until_time=request.until_time,
        agent_id=agent_id,
        mission_id=mission_id,
    )
    await read_soon(engine, READING_S)
    tally, after = Tally(request.by, day_of), ("", "")
    while rows := await engine.read(report.page, wanted, after):
        for row in rows:
            tally.add(row)
        after = report.cursor_of(rows[-1])
    titles: dict[str, str] = {}
    if request.by in ("mission", "sortie"):
        titles = await engine.read(report.titles, request.by, tally.names)
    not_known, more = await engine.read(report.not_known, wanted)
    kept_days = engine.config.retention.usage_days
    return UsageReport(
        by=request.by,
        time_zone=request.time_zone,
        groups=tally.groups(titles),
        not_known=not_known,
        not_known_more=more,
        reading=await engine.read(transcripts.reading, wanted),
        kept_since=iso(engine.clock() - kept_days * records.DAY_MS),
        budget=await engine.read(budgets.budget_of, mission_id) if mission_id else None,
    )


def _days(name: str) -> Callable[[str], str]:
    """Return a function from a time to its day in a time zone; raises InvalidParams."""
    zone = _zone(name)

    @lru_cache(maxsize=10_000)
    def quarter(beginning: str) -> str:
        """Return the day of a quarter of an hour: no zone changes its day within one."""
        return datetime.fromisoformat(beginning).astimezone(zone).date().isoformat()

    def day_of(at: str) -> str:
        return quarter(f"{at[:14]}{int(at[14:16]) // 15 * 15:02}:00Z")

    return day_of


def _zone(name: str) -> tzinfo:
    if (found := _OFFSET.fullmatch(name)) is not None:
        minutes = int(found[2]) * 60 + int(found[3])
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=minutes if found[1] == "+" else -minutes))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidParams(
            f"There is no time zone {name}.",
            hint="Give one such as Europe/Berlin, UTC or +02:00.",
            field="time_zone",
        ) from None
