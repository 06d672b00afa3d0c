"""Tokens of a report: the only part from transcripts, not from the event log."""

from typing import TYPE_CHECKING, NamedTuple

from fleetd.protocol.errors import MethodNotFound

from ..client.models import UsageGet

if TYPE_CHECKING:
    from ..client import Fleet
    from ..client.models import ModelUsage, Report


class UsageRow(NamedTuple):
    """The tokens of one agent or model; ``cost`` is a text, empty without a price table.

    If it is not ``known``, no transcript of it is read.
    """

    name: str
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: str = ""
    known: bool = True


def usage_of(client: "Fleet", report: "Report") -> list[UsageRow] | None:
    """Return the tokens of an agent by model, or of a mission by agent.

    Return None if the daemon is too old to count them.
    """
    found: dict[str, list[ModelUsage]] = {}
    unknown: dict[str, None] = {}
    try:
        for wanted in _requests(report):
            answer = client.call(wanted)
            for group in answer.groups:
                found.setdefault(group.name or "unknown", []).extend(group.models)
            if wanted.by == "agent":
                unknown |= dict.fromkeys(each.agent_id for each in answer.not_known)
    except MethodNotFound:
        return None
    priced = _costs(found) if found else {}
    rows = [_row(name, models, priced.get(name, "")) for name, models in found.items()]
    return [*rows, *(UsageRow(name, known=False) for name in unknown if name not in found)]


def _requests(report: "Report") -> list[UsageGet]:
    if report.agent is not None:
        return [UsageGet(by="model", agent_id=report.agent.id)]
    return [UsageGet(by="agent", mission_id=each.id) for each in report.missions]


def _costs(found: "dict[str, list[ModelUsage]]") -> dict[str, str]:
    # Imported here: loading prices takes half a second.
    from ..output.prices import load_prices

    prices = load_prices()
    return {name: prices.cost(found[name]).text for name in found} if prices else {}


def _row(name: str, models: "list[ModelUsage]", cost: str) -> UsageRow:
    return UsageRow(
        name=name,
        input=sum(each.input_tokens for each in models),
        output=sum(each.output_tokens for each in models),
        cache_read=sum(each.cache_read_tokens for each in models),
        cache_write=sum(each.cache_write_tokens for each in models),
        reasoning=sum(each.reasoning_tokens for each in models),
        cost=cost,
    )
