"""What the measuring of growth writes: every figure in a table, and a drawing without scripts."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.growth.asking import Cost
from benchmarks.growth.listening import SubscriberCost
from benchmarks.growth.page import ASKED, BEGIN, DRAWN, END, Growth, drawing, text, write
from benchmarks.growth.sorties import Mission
from benchmarks.growth.stores import Store

COST = Cost(1.25, 2.5, 800.0, 0.25, 100.0)


def store(missions: int, events: int) -> Store:
    return Store(
        missions=missions,
        events=events,
        database_mb=1.5,
        start_ms=300.0,
        start_cpu_ms=280.0,
        start_mb=46.0,
        used_mb=50.0,
        read_mb=51.0,
        costs=dict.fromkeys((*DRAWN, *ASKED), COST),
    )


def subscribed(subscribers: int) -> SubscriberCost:
    return SubscriberCost(
        subscribers=subscribers,
        all_ms=1.0,
        all_p95_ms=2.0,
        append_ms=1.0,
        append_p95_ms=2.0,
        delivery_us=25.0,
        each_kb=17.0,
    )


@pytest.fixture
def growth() -> Growth:
    names = ("sortie.progress", "checkpoint.create", "recovery.restore")
    return Growth(
        stores=[store(10, 1_000), store(1_000, 1_000_000)],
        missions=[Mission(n, dict.fromkeys(names, COST), 9_000) for n in (10, 10_000)],
        subscribers=[subscribed(1), subscribed(500)],
        fsync_ms=0.25,
        seconds=100,
        date="2026-01-05",
    )


def test_every_call_has_its_line_with_its_ratio_to_an_fsync(growth: Growth) -> None:
    told = text(growth)
    for name in (*DRAWN, *ASKED):
        assert f"| {name} | 1.25 (2.50), 5.0 | 1.25 (2.50), 5.0 | 1.0 |" in told


def test_the_drawing_is_plain_and_has_every_line(growth: Growth) -> None:
    drawn = ElementTree.fromstring(drawing(growth))
    kinds = {element.tag.rpartition("}")[2] for element in drawn.iter()}
    assert kinds <= {"svg", "title", "style", "g", "text", "line", "polyline", "circle", "rect"}
    lines = [element for element in drawn.iter() if element.tag.endswith("polyline")]
    assert len(lines) == len(DRAWN) + len(ASKED) + 3 + 3 + 2


def test_only_what_stands_between_the_marks_is_written(tmp_path: Path, growth: Growth) -> None:
    page = tmp_path / "growth.md"
    page.write_text(f"Before\n{BEGIN}\nold\n{END}\nBehind\n")
    write(tmp_path, growth)
    first = page.read_text()
    assert first.startswith("Before\n")
    assert first.endswith(f"{END}\nBehind\n")
    assert "old" not in first
    write(tmp_path, growth)
    assert page.read_text() == first
    assert (tmp_path / "growth.svg").read_text().startswith("<svg")
