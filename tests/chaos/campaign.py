"""The framework of campaigns: seeds, rounds, planted defects, figures; must not know any fault.

A campaign tests a promise by trying to break it, round after round. As far as the machine allows,
the seed and the number of a round determine everything in it. So a red round can be repeated
alone.
"""

import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import NeverReady, environment


class Red(AssertionError):
    """A promise was broken; the text names it and describes what was seen."""


class CannotRun(Exception):
    """This machine lacks something that the campaign needs; the text names it."""


class NotPlanted(Exception):
    """A daemon did not start with a defect, because the code that the defect patches is missing."""


@dataclass(frozen=True)
class Campaign:
    """One way of trying to break a promise.

    ``run`` iterates over ``Run.rounds()`` and raises Red. ``short`` and ``long`` are numbers of
    ``unit``. ``planted`` names the defects that the campaign can plant in the product, each with
    the number of rounds within which it must turn red. ``shared`` is whether it needs a PostgreSQL
    server: then ``make test-postgres`` runs its short form.
    """

    name: str
    what: str
    unit: str
    run: Callable[["Run"], None]
    short: int
    long: int
    planted: Mapping[str, int]
    shared: bool = False


@dataclass
class Run:
    """The parameters and results of a running campaign.

    ``planted`` is the defect to plant, None for the unchanged product. ``judged`` says whether
    figures that depend on the machine's speed count: not in the short form, whose machine is busy.
    ``keep`` keeps the home of a red round. ``figures`` holds the results for the table of promises:
    counts, and times in ms.
    """

    seed: int
    count: int
    place: Path
    planted: str | None = None
    judged: bool = False
    only: int | None = None
    keep: bool = False
    say: Callable[[str], None] = print
    figures: dict[str, float] = field(default_factory=dict)
    done: int = 0
    round: int = 0
    chance: random.Random = field(default_factory=random.Random)

    def rounds(self) -> Iterator[int]:
        """Iterate over the numbers of the rounds; each round has its own ``chance``."""
        for number in range(self.count) if self.only is None else [self.only]:
            self.round = number
            self.chance = random.Random(f"{self.seed}/{number}")
            yield number
            self.done += 1

    def add(self, figure: str, number: float = 1) -> None:
        """Add a number to a figure."""
        self.figures[figure] = self.figures.get(figure, 0) + number

    def worst(self, figure: str, number: float) -> None:
        """Keep the maximum of a figure."""
        self.figures[figure] = max(self.figures.get(figure, number), number)

    @contextmanager
    def home(self) -> Iterator[tuple[Path, dict[str, str]]]:
        """Create a home for one round; yield its directory and the environment of its user."""
        directory = Path(tempfile.mkdtemp(prefix="r", dir=self.place))
        kept = False
        try:
            yield directory, environment(directory)
        except AssertionError:
            kept = self.keep
            raise
        finally:
            if not kept:
                shutil.rmtree(directory)


@dataclass(frozen=True)
class Outcome:
    """The end of a run: ``red`` is None, or the broken promise and how to reproduce it."""

    campaign: str
    seed: int
    rounds: int
    seconds: float
    figures: dict[str, float]
    red: str | None


def carry_out(
    campaign: Campaign,
    *,
    seed: int,
    count: int,
    planted: str | None = None,
    judged: bool = False,
    only: int | None = None,
    keep: bool = False,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Run a campaign in a directory of its own; raises CannotRun, and NotPlanted for no red.

    ``keep`` keeps the directory of a red run for inspection.
    """
    place = Path(tempfile.mkdtemp(prefix="campaign-")).resolve()
    run = Run(seed, count, place, planted, judged=judged, only=only, keep=keep, say=say)
    begun, red = time.monotonic(), None
    defect = f", planted: {planted}" if planted else ""
    say(f"{campaign.name}: seed {seed}, {count} {campaign.unit}{defect}")
    try:
        campaign.run(run)
    except AssertionError as broken:
        if planted and isinstance(broken, NeverReady):
            raise NotPlanted(f"{campaign.name}: {planted} cannot be planted:\n{broken}") from broken
        planted_too = f" --planted {planted}" if planted else ""
        told = str(broken) or "".join(traceback.format_tb(broken.__traceback__)[-1:]).strip()
        red = (
            f"{told}\n  round {run.round}; again: python -m tests.chaos {campaign.name} "
            f"--seed {seed} --count {count} --round {run.round}{planted_too}"
        )
    finally:
        if not (keep and red):
            shutil.rmtree(place, ignore_errors=True)
    seconds = time.monotonic() - begun
    return Outcome(campaign.name, seed, run.done, seconds, dict(run.figures), red)
