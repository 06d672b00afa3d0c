"""The files of runs: history that is plain or compressed, and ``latest.json`` as a copy."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd.domain.rules import KINDS
from fleetd.protocol.errors import Corrupt, IntegrityMismatch, SchemaInvalid
from fleetd.protocol.types import Noun
from fleetd.store.files.layout import LAYOUTS
from fleetd.store.files.record_files import MOST_BYTES, packed
from tests.store.noun_files import KilledBetweenSteps, NounFiles, Recorder, put_directory, put_file

ONE, TWO = b'{"one": 1}\n', b'{"two": 2}\n' * 40


@pytest.fixture
def stage(tmp_path: Path) -> NounFiles:
    return NounFiles(tmp_path / "checkpoints", "snapshot")


def compress(stage: NounFiles, record_id: str, data: bytes) -> None:
    stage.backups.compress(stage.owner, record_id, packed(data))


def gz(stage: NounFiles, record_id: str) -> Path:
    return stage.inside / f"{record_id}.json.gz"


def contents(stage: NounFiles) -> dict[str, bytes]:
    """Return what every file holds that is none of a crash's."""
    found = {}
    for path in stage.top.rglob("*"):
        if path.is_file() and not path.name.startswith(".tmp-"):
            raw = path.read_bytes()
            found[path.name] = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return found


@pytest.mark.parametrize("step", range(1, 8))
def test_whenever_it_is_killed_there_are_whole_files_and_latest_is_the_old_or_the_new_one(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    stage.write(stage.first, ONE)
    with monkeypatch.context() as patched:
        Recorder(patched, fail_at=step)
        with pytest.raises(KilledBetweenSteps):
            stage.write(stage.second, TWO)
    found = contents(stage)
    assert found.pop("latest.json") in (ONE, TWO)
    assert found in (
        {f"{stage.first}.json": ONE},
        {f"{stage.first}.json": ONE, f"{stage.second}.json": TWO},
    )


def test_what_is_the_latest_already_is_not_written_again(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write(stage.first, ONE)
    recorder = Recorder(monkeypatch)
    stage.write(stage.first, ONE)
    assert "rename temp -> latest.json" not in recorder.calls


def test_latest_stays_when_nobody_knows_what_the_newest_holds(stage: NounFiles) -> None:
    stage.write(stage.first, ONE)
    stage.backups.write(stage.owner, stage.second, TWO, stage.second, None)
    assert stage.latest.read_bytes() == ONE


def test_the_history_is_compressed_and_latest_is_not(stage: NounFiles) -> None:
    stage.write(stage.first, ONE)
    compress(stage, stage.first, ONE)
    assert stage.files() == {stage.name(f"{stage.first}.json.gz"), f"{stage.owner}/latest.json"}
    assert stage.read(stage.first) == ONE
    assert stage.latest.read_bytes() == ONE
    assert stage.backups.list(stage.owner).files == {stage.first}
    assert len(stage.backups.find(stage.first)) == 1


def test_the_same_bytes_are_compressed_to_the_same_bytes() -> None:
    assert packed(TWO) == packed(TWO)
    # No name, no time: RFC 1952, FLG and MTIME.
    assert packed(TWO)[3:8] == bytes(5)


COMPRESSING = [
    "fsync temp",
    "rename temp -> cp_20260105T120000000Z_1.json.gz",
    "fsync history",
    "unlink cp_20260105T120000000Z_1.json",
    "fsync history",
]


def test_the_compressed_file_is_on_the_disk_before_the_plain_one_goes(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write(stage.first, ONE)
    recorder = Recorder(monkeypatch)
    compress(stage, stage.first, ONE)
    assert recorder.calls == COMPRESSING


@pytest.mark.parametrize("step", range(1, len(COMPRESSING) + 1))
def test_a_kill_while_it_is_compressed_leaves_one_form_whole(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    stage.write(stage.first, ONE)
    with monkeypatch.context() as patched:
        Recorder(patched, fail_at=step)
        with pytest.raises(KilledBetweenSteps):
            compress(stage, stage.first, ONE)
    assert set(contents(stage).values()) == {ONE}
    assert stage.read(stage.first) == ONE
    stage.backups.sweep()
    compress(stage, stage.first, ONE)
    assert stage.files() == {stage.name(f"{stage.first}.json.gz"), f"{stage.owner}/latest.json"}


def test_a_file_that_is_written_again_is_plain_again(stage: NounFiles) -> None:
    stage.write(stage.first, ONE)
    compress(stage, stage.first, ONE)
    stage.write(stage.first, ONE)
    assert stage.files() == stage.whole(stage.first)


def test_removing_takes_both_forms(stage: NounFiles) -> None:
    stage.write(stage.first, ONE)
    gz(stage, stage.first).write_bytes(packed(ONE))
    stage.write(stage.second, TWO)
    compress(stage, stage.second, TWO)
    stage.remove(stage.second, stage.first, ONE)
    assert stage.latest.read_bytes() == ONE
    stage.remove(stage.first, None)
    assert not stage.top.exists()


def zeros(megabytes: int) -> bytes:
    return gzip.compress(bytes(megabytes * 1024 * 1024), 9)


BROKEN: dict[str, tuple[bytes, str]] = {
    "ends early": (packed(TWO)[:-1], "it ends early"),
    "ends in the middle": (packed(TWO)[: len(packed(TWO)) // 2], "it ends early"),
    "has a head only": (packed(TWO)[:10], "it ends early"),
    "is empty": (b"", "it ends early"),
    "goes on": (packed(TWO) + b"more", "it has data after its end"),
    "goes on with zeros": (packed(TWO) + bytes(4), "it has data after its end"),
    "has two members": (packed(TWO) + packed(TWO), "it has data after its end"),
    "is none": (TWO, "it is not a gzip file"),
    "has a wrong sum": (packed(TWO)[:-8] + bytes(8), "it is not a gzip file"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_gzip_that_is_not_whole_is_a_mismatch(stage: NounFiles, kind: str) -> None:
    raw, why = BROKEN[kind]
    stage.write(stage.first, TWO)
    stage.path(stage.first).unlink()
    gz(stage, stage.first).write_bytes(raw)
    with pytest.raises(IntegrityMismatch, match=why) as error:
        stage.read(stage.first)
    assert error.value.values["path"] == str(gz(stage, stage.first))


def test_a_gzip_that_unpacks_to_more_than_any_snapshot_is_refused(stage: NounFiles) -> None:
    stage.write(stage.first, TWO)
    stage.path(stage.first).unlink()
    gz(stage, stage.first).write_bytes(zeros(2 * MOST_BYTES // 1024 // 1024))
    with pytest.raises(IntegrityMismatch, match="it is too large"):
        stage.read(stage.first)


@pytest.mark.parametrize("plain", [b"", None])
def test_of_both_forms_the_one_that_can_be_read_is(stage: NounFiles, plain: bytes | None) -> None:
    """A crash may leave both; which of them holds a snapshot the caller finds out."""
    stage.write(stage.first, ONE)
    gz(stage, stage.first).write_bytes(packed(TWO))
    assert stage.read(stage.first) == ONE
    stage.path(stage.first).unlink()
    if plain is None:
        put_directory(stage.path(stage.first))
    assert stage.read(stage.first) == TWO
    gz(stage, stage.first).write_bytes(b"")
    with pytest.raises(Corrupt) as error:
        stage.read(stage.first)
    # The plain form is the one that ought to be there.
    assert isinstance(error.value, SchemaInvalid if plain is None else IntegrityMismatch)


def test_a_plain_form_that_the_disk_does_not_give_is_read_from_the_other(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write(stage.first, ONE)
    gz(stage, stage.first).write_bytes(packed(ONE))
    real = os.open

    def broken(path: str | Path, *args: int, **more: int) -> int:
        if str(path).endswith(".json"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", broken)
    assert stage.read(stage.first) == ONE


def _to_file(stage: NounFiles, _elsewhere: Path) -> None:
    put_file(stage.inside)


def _to_link(stage: NounFiles, elsewhere: Path) -> None:
    stage.inside.symlink_to(elsewhere)


@pytest.mark.parametrize("put", [_to_file, _to_link])
def test_a_history_that_is_no_directory_is_neither_followed_nor_removed(
    stage: NounFiles, tmp_path: Path, put: Callable[[NounFiles, Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{stage.first}.json").write_bytes(b"planted")
    stage.top.mkdir(parents=True)
    stage.latest.write_bytes(ONE)
    put(stage, elsewhere)
    for attempt in (
        lambda: stage.write(stage.first, TWO),
        lambda: compress(stage, stage.first, TWO),
        lambda: stage.read(stage.first),
        lambda: stage.remove(stage.first, None),
        lambda: stage.backups.list(stage.owner),
        lambda: stage.backups.set_latest(stage.owner, None),
    ):
        with pytest.raises(OSError, match="Not a directory"):
            attempt()
    assert stage.backups.sweep() == 0
    assert list(stage.backups.files()) == []
    assert stage.latest.read_bytes() == ONE
    assert os.listdir(elsewhere) == [f"{stage.first}.json"]
    assert (elsewhere / f"{stage.first}.json").read_bytes() == b"planted"


@pytest.mark.parametrize(
    ("wanted", "kind", "trouble"),
    [
        ("cp_1_1", "missing", "is missing"),
        ("cp_1_1", "directory", "is a directory"),
        ("cp_1_1", "link", "is a symlink"),
        ("cp_1_1", "file", ""),
        (None, "file", "is there, but no snapshot has a file"),
        (None, "missing", ""),
        (None, "directory", ""),
    ],
)
def test_what_is_wrong_with_a_copy_is_said(
    stage: NounFiles, wanted: str | None, kind: str, trouble: str
) -> None:
    stage.top.mkdir(parents=True)
    put: dict[str, Callable[[Path], object]] = {
        "directory": put_directory,
        "file": put_file,
        "link": lambda place: place.symlink_to("history/cp_1_1.json"),
        "missing": lambda _: None,
    }
    put[kind](stage.latest)
    assert stage.backups.list(stage.owner).latest_trouble(wanted) == trouble


@pytest.mark.parametrize("noun", ["checkpoint", "snapshot"])
def test_the_policy_and_the_layout_of_a_noun_agree(noun: Noun) -> None:
    policy, layout = KINDS[noun], LAYOUTS[noun]
    assert (policy.noun, layout.noun) == (noun, noun)
    assert policy.copies == layout.copies
    assert policy.compressible == (len(layout.endings) > 1)
