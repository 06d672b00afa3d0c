"""What the daemon heard of hooks; without a daemon, that there is none."""

from collections.abc import Sequence
from typing import NamedTuple

from fleetd.protocol.errors import MethodNotFound, Unavailable

from ..client import Fleet, TooSlow
from ..client.models import Finding, HarnessStatus, HookStatusGet, SpoolStatus
from ..output import console
from ..output.tables import Column

COLUMNS = (
    Column("LAST EVENT", matters=4),
    Column("AT", matters=6, times="ago"),
    Column("EVENTS", matters=5),
    Column("P50", matters=1),
    Column("P95", matters=2),
)


class Heard(NamedTuple):
    """What was heard, by harness; ``complaint`` says why nothing could be asked."""

    harnesses: Sequence[HarnessStatus] = ()
    spool: SpoolStatus | None = None
    complaint: str = ""

    @property
    def answered(self) -> bool:
        """Return whether a daemon was there."""
        return not self.complaint

    def of(self, harness: str) -> HarnessStatus | None:
        """Return what was heard of one harness."""
        return next((each for each in self.harnesses if each.harness == harness), None)

    def row(self, harness: str) -> tuple[str, ...]:
        """Return the cells of a table."""
        found = self.of(harness)
        if found is None:
            return ("", "", "0" if self.answered else "?", "", "")
        times = (_ms(found.p50_ms), _ms(found.p95_ms))
        return (found.last_event or "", found.last_event_at or "", str(found.deliveries), *times)

    def tell(self) -> None:
        """Print what there is to say besides the table."""
        if self.complaint:
            complaint = self.complaint.removesuffix(".")
            console.warn(f"{complaint}. What hooks tell meanwhile waits in the spool.")
        elif self.spool is not None and self.spool.files:
            waiting = console.plural(self.spool.files, "file")
            told = f"{waiting} ({console.size(self.spool.size_bytes)})"
            console.line(f"\nIn the spool {self.spool.directory}: {told}")

    def finding(self) -> Finding:
        """Return the daemon's presence as the result of a check."""
        told = self.complaint or "fleetd answers"
        return Finding(check="daemon", ok=self.answered, detail=told)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} ms"


def ask() -> Heard:
    """Ask the daemon; one that is away, hangs, or is too old to know, is told as such."""
    try:
        with Fleet() as client:
            status = client.call(HookStatusGet())
    except Unavailable as error:
        return Heard(complaint=error.message)
    except TooSlow as error:
        return Heard(complaint=f"{error.message} Look at its log, or restart it.")
    except MethodNotFound:
        return Heard(complaint="fleetd is of an older version; restart it.")
    return Heard(status.harnesses, status.spool)
