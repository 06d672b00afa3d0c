"""The page with the tables: what is written into it, and that the prose around them stays."""

from pathlib import Path

import pytest

from benchmarks.machine import Machine
from benchmarks.measure import Samples
from benchmarks.performance import BEGIN, END, write
from benchmarks.rows import Beside, Promise, Run, row

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
PEER = Beside(
    name="LangGraph SqliteSaver",
    does="put",
    version="3.1",
    way="in process",
    journal_mode="wal",
    synchronous="FULL",
)
RUN = Run(
    machine=Machine(
        cpu="Some CPU",
        cores=2,
        kernel="Linux 6",
        file_system="ext4",
        python="3.11",
        sqlite="3.51",
        load=0.1,
    ),
    date="2026-01-05T12:00Z",
    revision="abc",
    command="python -m benchmarks",
    seconds=400,
    seed=7,
    absent={"swarm-mail": "there is no node here"},
    rows=[
        row(
            "event.append",
            Samples([1.5] * 10),
            Samples([1.0] * 10),
            reference="fsync",
            promise=Promise(ratio=1.8),
        ),
        row(
            "event.append",
            Samples([2.0]),
            Samples([4.0]),
            reference=PEER.name,
            promise=Promise(ratio=1.4),
            peer=PEER,
        ),
    ],
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n{BEGIN}\nold\n{END}\nAfter\n")
    return page


def test_the_tables_take_the_place_of_the_last_ones(page: Path) -> None:
    write(page, RUN)
    once = page.read_text()
    write(page, RUN)
    assert page.read_text() == once
    assert once.startswith(f"# Before\n{BEGIN}\n")
    assert once.endswith(f"\n{END}\nAfter\n")
    assert "old" not in once


def test_the_page_says_when_on_what_and_with_which_command(page: Path) -> None:
    write(page, RUN)
    said = page.read_text()
    for part in (
        "2026-01-05T12:00Z",
        "revision abc",
        "2 x Some CPU",
        "ext4",
        RUN.command,
        "seed 7",
    ):
        assert part in said
    assert "Not measured: swarm-mail, there is no node here." in said


def test_our_rows_have_their_target_and_peers_a_table_of_their_own(page: Path) -> None:
    write(page, RUN)
    lines = page.read_text().splitlines()
    assert (
        "| event.append | 10 | 1.500 | 1.500 | fsync | 1.50 | 1.50-1.50 | ≤ 1.8 x fsync | kept |  |"
        in lines
    )
    assert (
        "| event.append | LangGraph SqliteSaver | 2.000 | 4.000 | 0.50 | 0.50-0.50 |"
        " ≤ 1.4 x LangGraph SqliteSaver | kept | 3.1 put, in process, wal, synchronous=FULL |"
        in lines
    )


def test_a_page_without_marks_is_refused_and_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Before\n")
    with pytest.raises(ValueError, match="no place for the tables"):
        write(page, RUN)
    assert page.read_text() == "# Before\n"


def test_the_page_in_docs_has_its_marks_once() -> None:
    text = PAGE.read_text()
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
