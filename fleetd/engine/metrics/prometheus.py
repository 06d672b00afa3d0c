"""Prometheus' text exposition format 0.0.4.

prometheus_client would write it too. Its import takes 55 ms and brings modules that the daemon does
without, for what is one page here; the tests read this page's output with its parser.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ...host.histogram import Histogram

Labels = Mapping[str, str]
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(msgspec.Struct, frozen=True):
    """One value, and the labels that tell it from the others of its family."""

    value: float
    labels: Labels = {}


class Family(msgspec.Struct, frozen=True):
    """A metric of a plain type, ``gauge`` or ``counter``, with all its samples."""

    name: str
    type: str
    help: str
    samples: Sequence[Sample]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the family."""
        yield from _head(self.name, self.type, self.help)
        for sample in self.samples:
            yield f"{self.name}{_labelled(sample.labels)} {sample.value}"


class Distribution(msgspec.Struct, frozen=True):
    """A metric of type ``histogram``, one histogram for each value of a label.

    ``bounds`` are powers of two in the histograms' own unit, of which ``per_unit`` make one of the
    metric's. A number below a bound of whole numbers is at most that bound less one.
    """

    name: str
    help: str
    bounds: Sequence[int]
    per_unit: int
    histograms: Sequence[tuple[Labels, Histogram]]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the metric."""
        yield from _head(self.name, "histogram", self.help)
        for labels, histogram in self.histograms:
            counts = histogram.below(self.bounds)
            edges = [*(str(self._edge(bound)) for bound in self.bounds), "+Inf"]
            for edge, count in zip(edges, counts, strict=True):
                yield f"{self.name}_bucket{_labelled({**labels, 'le': edge})} {count}"
            yield f"{self.name}_sum{_labelled(labels)} {histogram.total / self.per_unit}"
            yield f"{self.name}_count{_labelled(labels)} {counts[-1]}"

    def _edge(self, bound: int) -> float:
        return bound - 1 if self.per_unit == 1 else bound / self.per_unit


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {escaped}"
    yield f"# TYPE {name} {kind}"


def _labelled(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def text(metrics: Sequence[Family | Distribution]) -> str:
    """Return the whole exposition."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())
