"""Prices of tokens: the table of genai-prices, from the extra ``cost``; only this imports it.

Each request is priced by its own input, since some models cost more for a long one. So requests
come in groups within which no price changes.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..client.models import ModelUsage

_DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


class Cost:
    """The known part of a cost in US dollars, and the models without a known price."""

    def __init__(self) -> None:
        self.usd = Decimal(0)
        self.unknown: set[str] = set()
        self.priced = False

    def add(self, model: str, price: Decimal | None) -> None:
        """Add the price of some requests; None where the table does not know the model."""
        if price is None:
            self.unknown.add(model)
        else:
            self.usd += price
            self.priced = True

    @property
    def text(self) -> str:
        """Return the cost in words; with an unknown part, the amount is a minimum."""
        if not self.unknown:
            return dollars(self.usd)
        return f"{dollars(self.usd)} + unknown" if self.priced else "unknown"


def dollars(usd: Decimal) -> str:
    """Return an amount to the cent; one below a cent does not show as zero."""
    return "<$0.01" if 0 < usd < Decimal("0.01") else f"${usd:,.2f}"


class PriceTable:
    """The prices that are installed; ``label`` names the table and its date."""

    def __init__(self) -> None:
        """Load the table, which takes half a second; raises ImportError without the extra."""
        import genai_prices
        from genai_prices import data_snapshot

        self._library = genai_prices
        today = datetime.now(UTC).date().isoformat()
        known = (each for each in _dates(data_snapshot.get_snapshot().providers) if each <= today)
        self.date = max(known, default=None)
        self.version = genai_prices.__version__

    @property
    def label(self) -> str:
        """Return the name of the table, and the newest date that it names."""
        return f"genai-prices {self.version}, as of {self.date or 'an unknown date'}"

    def cost(self, models: Iterable["ModelUsage"]) -> Cost:
        """Return what the requests of models cost."""
        cost = Cost()
        for each in models:
            cost.add(each.model or "a model that is not told", self._price(each))
        return cost

    def _price(self, each: "ModelUsage") -> Decimal | None:
        """Return the price of requests by that of the mean one; None for an unknown model."""
        if not each.model or not each.requests:
            return None
        given = each.input_tokens + each.cache_read_tokens + each.cache_write_tokens
        figures = {
            "input_tokens": given,
            "cache_read_tokens": each.cache_read_tokens,
            "cache_write_tokens": each.cache_write_tokens,
            "cache_write_1h_tokens": each.cache_write_1h_tokens,
            "output_tokens": each.output_tokens,
        }
        mean = {name: Decimal(figure) / each.requests for name, figure in figures.items() if figure}
        at = datetime.fromisoformat(each.last_at)
        try:
            found = self._library.calc_price(
                self._library.Usage(**mean), each.model, genai_request_timestamp=at
            )
        except (LookupError, ValueError):
            return None
        return found.total_price * each.requests


def load_prices() -> PriceTable | None:
    """Return the price table; None where the extra is not installed."""
    try:
        return PriceTable()
    except ImportError:
        return None


def _dates(providers: Iterable[Any]) -> Iterator[str]:
    """Yield the dates that a table names: when prices began, and when they were checked."""
    for provider in providers:
        yield from _DATE.findall(provider.price_comments or "")
        for model in provider.models:
            yield from _DATE.findall(model.price_comments or "")
            for each in model.prices if isinstance(model.prices, list) else ():
                if (began := getattr(each.constraint, "start_date", None)) is not None:
                    yield began.isoformat()[:10]
