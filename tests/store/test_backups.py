"""Files of records: whole or not there, private, and nothing else is ever touched or read.

What holds for both layouts is asked of both.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetd.host.atomic_files import FILE_MAX
from fleetd.protocol.errors import Corrupt
from fleetd.protocol.types import Noun
from fleetd.store.files.layout import Listing
from fleetd.store.files.record_files import RecordFile
from tests.store.noun_files import (
    KilledBetweenSteps,
    NounFiles,
    Recorder,
    put_directory,
    put_fifo,
    put_file,
    put_link,
)


@pytest.fixture(params=["checkpoint", "snapshot"])
def noun(request: pytest.FixtureRequest) -> Noun:
    found: Noun = request.param
    return found


@pytest.fixture
def stage(tmp_path: Path, noun: Noun) -> NounFiles:
    return NounFiles(tmp_path / "flightline" / "checkpoints", noun)


@pytest.fixture
def checkpoints(tmp_path: Path) -> NounFiles:
    return NounFiles(tmp_path / "flightline" / "checkpoints", "checkpoint")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


ORDER: dict[Noun, list[str]] = {
    "checkpoint": [
        "fsync temp",
        "rename temp -> chk-00000002.json",
        "fsync msn-00000001",
        "symlink chk-00000002.json -> temp",
        "rename temp -> latest.json",
        "fsync msn-00000001",
    ],
    "snapshot": [
        "fsync temp",
        "rename temp -> cp_20260105T120000000Z_2.json",
        "fsync history",
        "unlink cp_20260105T120000000Z_2.json.gz",
        "fsync temp",
        "rename temp -> latest.json",
        "fsync run-1",
    ],
}


def test_a_file_is_written_synced_renamed_and_only_then_is_it_the_latest(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write(stage.first, b"one")
    recorder = Recorder(monkeypatch)
    stage.write(stage.second, b"two")
    assert recorder.calls == ORDER[stage.noun]


def test_the_first_file_makes_its_directories_last(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.backups.root.mkdir(parents=True)
    recorder = Recorder(monkeypatch)
    stage.write(stage.first, b"one")
    made = [f"mkdir {stage.owner}", "fsync checkpoints"]
    if stage.noun == "snapshot":
        made += ["mkdir history", f"fsync {stage.owner}"]
    assert recorder.calls[: len(made)] == made


@pytest.mark.usefixtures("no_umask")
def test_nobody_else_may_read_them_whatever_the_umask(stage: NounFiles) -> None:
    stage.write(stage.first, b"one")
    mode = stat.S_IMODE
    assert mode(stage.path(stage.first).stat().st_mode) == 0o600
    assert mode(stage.latest.stat().st_mode) & 0o600 == 0o600
    assert stage.latest.is_symlink() or mode(stage.latest.stat().st_mode) == 0o600
    for directory in {stage.top, stage.inside, stage.backups.root}:
        assert mode(directory.stat().st_mode) == 0o700


def test_latest_is_the_newest(stage: NounFiles) -> None:
    stage.write(stage.first, b"one")
    assert stage.is_latest(stage.first, b"one")
    stage.write(stage.second, b"two")
    assert stage.is_latest(stage.second, b"two")
    assert stage.files() == stage.whole(stage.first, stage.second)


def test_a_link_that_dangles_or_leads_elsewhere_is_replaced(
    stage: NounFiles, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("keep me")
    stage.write(stage.first, b"one")
    for target in ("nowhere.json", "latest.json", str(tmp_path / "precious")):
        stage.latest.unlink()
        stage.latest.symlink_to(target)
        stage.write(stage.first, b"one")
        assert stage.is_latest(stage.first, b"one")
    assert (tmp_path / "precious").read_text() == "keep me"


def test_writing_again_replaces_the_whole_file(stage: NounFiles) -> None:
    stage.write(stage.first, b"a long one")
    stage.write(stage.first, b"short")
    assert stage.read(stage.first) == b"short"
    assert stage.is_latest(stage.first, b"short")


@pytest.mark.parametrize("step", range(1, 8))
def test_a_kill_at_any_step_leaves_a_whole_file_or_the_one_before(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    order = ORDER[stage.noun]
    if step > len(order):
        return
    stage.write(stage.first, b"one")
    with monkeypatch.context() as patched:
        recorder = Recorder(patched, fail_at=step)
        with pytest.raises(KilledBetweenSteps):
            stage.write(stage.second, b"two")
    assert recorder.calls[:step] == order[:step]
    assert stage.read(stage.first) == b"one"
    assert stage.read(stage.second) == (None if step <= 2 else b"two")
    renamed = order.index("rename temp -> latest.json") + 1
    assert stage.latest.read_bytes() == (b"one" if step <= renamed else b"two")
    stage.backups.sweep()
    stage.write(stage.second, b"two")
    assert stage.files() == stage.whole(stage.first, stage.second)
    assert stage.is_latest(stage.second, b"two")


@pytest.mark.parametrize("step", range(1, 8))
def test_a_kill_while_a_file_is_removed_is_finished_by_the_next_try(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    stage.write(stage.first, b"one")
    stage.write(stage.second, b"two")
    with monkeypatch.context() as patched:
        recorder = Recorder(patched, fail_at=step)
        if step <= (7 if stage.copies else 5):
            with pytest.raises(KilledBetweenSteps):
                stage.remove(stage.second, stage.first, b"one")
            assert len(recorder.calls) >= step
    assert stage.read(stage.first) == b"one"
    assert stage.latest.is_symlink() or stage.latest.read_bytes() in (b"one", b"two")
    stage.backups.sweep()
    stage.remove(stage.second, stage.first, b"one")
    assert stage.files() == stage.whole(stage.first)
    assert stage.is_latest(stage.first, b"one")


def test_a_disk_without_room_leaves_no_temp_file(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write(stage.first, b"one")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            stage.write(stage.second, b"two")
    assert stage.files() == stage.whole(stage.first)
    assert stage.is_latest(stage.first, b"one")


@pytest.mark.parametrize(
    "name",
    ["../escape", "chk-1/../../x", "chk-", "", ".", "..", "chk-1\n", "CHK-1", "chk-\x00", "/etc"],
)
def test_an_id_that_is_a_path_never_becomes_one(stage: NounFiles, name: str) -> None:
    backups, owner, first = stage.backups, stage.owner, stage.first
    backups.root.mkdir(parents=True)
    owned = name in ("chk-", "CHK-1") and stage.noun == "snapshot"  # a run may be called so
    attempts: list[Callable[[], object]] = [
        lambda: backups.write(owner, name, b"x", None),
        lambda: backups.write(owner, first, b"x", name, None),
        lambda: backups.compress(owner, name, b"x"),
        lambda: backups.read(owner, name),
        lambda: stage.remove(name, None),
        lambda: backups.path_of(owner, name),
    ]
    if stage.copies:
        del attempts[1]  # a copy has nobody's name
    if not owned:
        attempts += [
            lambda: backups.write(name, first, b"x", None),
            lambda: backups.compress(name, first, b"x"),
            lambda: backups.read(name, first),
            lambda: backups.remove(name, [first], None),
            lambda: backups.list(name),
            lambda: backups.clear(name),
        ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="not an id"):
            attempt()
        stage.inside.mkdir(parents=True, exist_ok=True)
    assert {p.parent for p in backups.root.rglob("*.json")} <= {stage.inside}


def test_a_directory_that_is_a_link_is_not_followed(stage: NounFiles, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    inside = elsewhere / "history" if stage.copies else elsewhere
    inside.mkdir(parents=True)
    (inside / f"{stage.first}.json").write_bytes(b"planted")
    (elsewhere / ".tmp-precious").write_bytes(b"keep me")
    stage.backups.root.mkdir(parents=True)
    stage.top.symlink_to(elsewhere)
    before = {path.name for path in elsewhere.rglob("*")}
    with pytest.raises(OSError, match="Not a directory"):
        stage.write(stage.second, b"two")
    with pytest.raises(OSError, match="Not a directory"):
        stage.read(stage.first)
    with pytest.raises(OSError, match="Not a directory"):
        stage.remove(stage.first, None)
    assert stage.backups.sweep() == 0
    assert {path.name for path in elsewhere.rglob("*")} == before


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(FILE_MAX + 1)


def _link(path: Path) -> None:
    target = path.with_name(path.name.replace("2", "9").replace("1", "9"))
    target.write_bytes(b"planted")
    path.symlink_to(target.name)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("put", [put_fifo, _huge, _link, _loop, Path.mkdir])
def test_what_is_no_regular_file_is_corrupt_and_hangs_nobody(
    stage: NounFiles, put: Callable[[Path], None]
) -> None:
    stage.inside.mkdir(parents=True)
    put(stage.path(stage.first))
    with pytest.raises(Corrupt) as error:
        stage.read(stage.first)
    assert error.value.values == {"path": str(stage.path(stage.first))}
    assert "--repair" in error.value.hint
    kind = "checkpoint_schema_invalid" if stage.noun == "snapshot" else "corrupt"
    assert error.value.kind == kind


@pytest.mark.parametrize("put", [put_fifo, _link, _loop, _huge])
def test_writing_puts_a_regular_file_in_the_place_of_anything_but_a_directory(
    stage: NounFiles, put: Callable[[Path], None]
) -> None:
    stage.inside.mkdir(parents=True)
    put(stage.path(stage.first))
    stage.write(stage.first, b"one")
    assert stage.read(stage.first) == b"one"


def test_a_file_that_is_not_there_is_none(stage: NounFiles) -> None:
    assert stage.read(stage.first) is None
    stage.write(stage.first, b"one")
    assert stage.read(stage.second) is None
    assert stage.backups.find(stage.second) == []
    assert stage.backups.find(stage.first) == [RecordFile(stage.owner, stage.first)]


def test_the_sweep_removes_temp_files_and_nothing_else(stage: NounFiles) -> None:
    stage.write(stage.first, b"one")
    (stage.top / ".tmp-0123").write_bytes(b"half")
    (stage.inside / ".tmp-4567").write_bytes(b"half")
    (stage.inside / ".tmp-link").symlink_to(f"{stage.first}.json")
    (stage.inside / ".tmp-directory").mkdir()
    (stage.top / "notes.txt").write_text("a person's")
    (stage.backups.root / ".tmp-mine").write_text("in no directory of ours")
    (stage.backups.root / ".other").mkdir()
    (stage.backups.root / ".other" / ".tmp-other").write_text("not one of ours")
    before = stage.files()
    assert stage.backups.sweep() == 3
    gone = {f"{stage.owner}/.tmp-0123", stage.name(".tmp-4567"), stage.name(".tmp-link")}
    assert before - stage.files() == gone
    assert (stage.inside / ".tmp-directory").is_dir()


def test_the_sweep_of_nothing_is_nothing(stage: NounFiles) -> None:
    assert stage.backups.sweep() == 0
    assert list(stage.backups.files()) == []
    assert not stage.backups.root.exists()


def test_only_what_is_named_like_a_record_is_one(stage: NounFiles) -> None:
    stage.write(stage.second, b"two")
    stage.write(stage.first, b"one")
    for name in ("notes.json", f"{stage.first}.txt", ".tmp-1", "CHK-1.json", "cp_1.json", "chk-1"):
        (stage.inside / name).write_text("x")
    other = stage.backups.root / ".other"
    (other / "history").mkdir(parents=True)
    (other / "chk-00000003.json").write_text("x")
    (other / "history" / f"{stage.first}.json").write_text("x")
    found = [RecordFile(stage.owner, each) for each in (stage.first, stage.second)]
    assert list(stage.backups.files()) == found


def test_removing_the_newest_makes_the_one_before_the_latest(stage: NounFiles) -> None:
    stage.write(stage.first, b"one")
    stage.write(stage.second, b"two")
    stage.remove(stage.second, stage.first, b"one")
    assert stage.is_latest(stage.first, b"one")
    stage.remove(stage.second, stage.first, b"one")
    assert stage.files() == stage.whole(stage.first)


def test_removing_the_last_takes_latest_and_the_empty_directories_too(stage: NounFiles) -> None:
    stage.write(stage.first, b"one")
    stage.remove(stage.first, None)
    assert list(stage.backups.root.iterdir()) == []
    stage.remove(stage.first, None)
    stage.write(stage.second, b"two")
    (stage.top / "notes.txt").write_text("a person's")
    stage.remove(stage.second, None)
    assert stage.files() == {f"{stage.owner}/notes.txt"}


@pytest.mark.parametrize(
    ("name", "put"),
    [
        *(("its own", put) for put in (put_directory, put_fifo, put_link)),
        *(("latest.json", put) for put in (put_directory, put_fifo, put_file, put_link)),
    ],
)
def test_what_stands_in_the_place_is_moved_aside_and_named(
    stage: NounFiles, name: str, put: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    wrong = put_file if stage.noun == "checkpoint" else put_link
    if name == "latest.json" and put in (put_file, put_link) and put is not wrong:
        return  # of the right kind: it is replaced in one step
    stage.inside.mkdir(parents=True)
    place = stage.latest if name == "latest.json" else stage.path(stage.first)
    put(place)
    before = os.lstat(place).st_ino

    stage.write(stage.first, b"one")

    assert stage.read(stage.first) == b"one"
    assert stage.is_latest(stage.first, b"one")
    (aside,) = place.parent.glob(f"{place.name}.aside-*")
    assert os.lstat(aside).st_ino == before
    assert f"{place} was in the place of a file" in caplog.text
    assert aside.name in caplog.text
    assert stage.backups.list(stage.owner).files == {stage.first}
    assert list(stage.backups.files()) == [RecordFile(stage.owner, stage.first)]


def test_a_directory_in_the_place_does_not_stop_a_removal(stage: NounFiles) -> None:
    stage.write(stage.first, b"one")
    stage.path(stage.first).unlink()
    put_directory(stage.path(stage.first))
    stage.remove(stage.first, None)
    (aside,) = stage.inside.iterdir()
    assert (aside / "notes.txt").read_text() == "a person's"


def test_without_a_checkpoint_only_a_link_is_removed(checkpoints: NounFiles) -> None:
    checkpoints.write(checkpoints.first, b"one")
    checkpoints.backups.set_latest(checkpoints.owner, None)
    assert checkpoints.files() == {checkpoints.name(f"{checkpoints.first}.json")}
    put_file(checkpoints.latest)
    checkpoints.backups.set_latest(checkpoints.owner, None)
    assert checkpoints.latest.read_text() == "a person's"


def test_a_listing_tells_the_names_apart_without_reading_a_file(
    stage: NounFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.backups.list(stage.owner) == Listing(copies=stage.copies)
    stage.write(stage.first, b"one")
    put_directory(stage.path(stage.second))
    put_file(stage.inside / "notes.json")
    put_file(stage.inside / ".tmp-0123")
    put_file(stage.inside / f"{stage.second}.json.aside-0123")

    def never(*_: object) -> bytes:
        raise AssertionError("a file was read")

    monkeypatch.setattr("fleetd.store.files.record_files.read_file", never)
    inside = "history/" if stage.copies else ""
    assert stage.backups.list(stage.owner) == Listing(
        files=frozenset({stage.first}),
        blocked=frozenset({stage.second}),
        foreign=[f"{inside}{stage.second}.json.aside-0123", f"{inside}notes.json"],
        latest=None if stage.copies else f"{stage.first}.json",
        latest_kind="a file" if stage.copies else "a symlink",
        copies=stage.copies,
    )


@pytest.mark.parametrize(
    ("put", "trouble"),
    [
        (lambda _: None, "is missing"),
        (put_directory, "is a directory"),
        (put_file, "is a file"),
        (put_fifo, "is no file"),
        (lambda place: place.symlink_to("latest.json"), "points at itself"),
        (lambda place: place.symlink_to("chk-00000001.json"), "points at chk-00000001.json"),
        (
            lambda place: place.symlink_to("chk-9.json"),
            "points at chk-9.json, which is missing",
        ),
        (lambda place: place.symlink_to("chk-00000002.json"), ""),
    ],
)
def test_what_is_wrong_with_a_link_is_said(
    checkpoints: NounFiles, put: Callable[[Path], None], trouble: str
) -> None:
    for each in (checkpoints.first, checkpoints.second):
        checkpoints.backups.write(checkpoints.owner, each, b"x", None)
    put(checkpoints.latest)
    listing = checkpoints.backups.list(checkpoints.owner)
    assert listing.latest_trouble(checkpoints.second) == trouble


def test_an_owner_that_is_no_directory_cannot_be_listed(stage: NounFiles, tmp_path: Path) -> None:
    stage.backups.root.mkdir(parents=True)
    put_file(stage.top)
    with pytest.raises(NotADirectoryError):
        stage.backups.list(stage.owner)
    stage.top.unlink()
    stage.top.symlink_to(tmp_path)
    with pytest.raises(OSError, match=stage.owner):
        stage.backups.list(stage.owner)
