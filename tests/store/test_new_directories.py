"""What is made in directories that were made for it is there after a power cut."""

from pathlib import Path

import apsw
import pytest

from fleetd.protocol.types import Noun
from fleetd.store.files.record_files import RecordFiles
from fleetd.store.sqlite.connect import open_database
from tests.chaos.disk import RecordedDisk
from tests.store.noun_files import NounFiles


def test_a_database_is_found_below_directories_that_were_made_for_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disk = RecordedDisk(root)
    with disk.recording() as vfs:
        connection = open_database(root / "a" / "b" / "fleet.db", vfs)
        connection.execute("INSERT INTO store_meta VALUES ('told', 'yes')")
        acknowledged = len(disk.steps)
        connection.close()
    disk.after_cut(acknowledged, None, tmp_path / "left")
    left = apsw.Connection(str(tmp_path / "left" / "a" / "b" / "fleet.db"))
    assert left.execute("SELECT value FROM store_meta WHERE key = 'told'").get == "yes"
    left.close()


@pytest.mark.parametrize("noun", ["checkpoint", "snapshot"])
def test_a_file_is_found_below_directories_that_were_made_for_it(
    tmp_path: Path, noun: Noun
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disk = RecordedDisk(root)
    stage = NounFiles(root / "a" / "b", noun)
    with disk.recording():
        stage.write(stage.first, b"whole")
        acknowledged = len(disk.steps)
    disk.after_cut(acknowledged, None, tmp_path / "left")
    left = RecordFiles(tmp_path / "left" / "a" / "b", noun)
    assert left.read(stage.owner, stage.first) == b"whole"
