"""Every state of a snapshot's row, file, compressed file and ``latest.json``, and every way to it.

The expectations come from rules written down here, not from the code under test: see ``Case``.
"""

import gzip
import hashlib
import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from fleetd.domain.snapshots.codec import to_file
from fleetd.engine.files.verified_read import read_forms
from fleetd.engine.jobs.daily import compress
from fleetd.host.atomic_files import FILE_MAX
from fleetd.protocol.errors import Corrupt, FleetError, NotFound
from fleetd.protocol.requests.snapshot import (
    DeclaredOutcome,
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotRecord,
    SnapshotVerify,
)
from fleetd.protocol.requests.system import Findings
from fleetd.protocol.snapshots import Snapshot
from fleetd.store.files.record_files import RecordFile, packed
from tests.support.fleet import DAY, MINUTE, Clock, Fleet, opened

RowState = Literal["present", "missing", "damaged"]
Plain = Literal["present", "missing", "damaged"]
Packed = Literal["missing", "present", "damaged", "early end"]
Latest = Literal["right", "missing", "damaged", "directory"]
ROWS: tuple[RowState, ...] = ("present", "missing", "damaged")
PLAIN: tuple[Plain, ...] = ("present", "missing", "damaged")
PACKED: tuple[Packed, ...] = ("missing", "present", "damaged", "early end")
LATEST: tuple[Latest, ...] = ("right", "missing", "damaged", "directory")
SCHEMA, MISMATCH = "checkpoint_schema_invalid", "checkpoint_integrity_mismatch"


class Case(msgspec.Struct, frozen=True):
    """One state of the newest snapshot of a run, and the rules for it.

    ``kind`` chooses between kinds of damage: something changed, or no snapshot any more.
    """

    row: RowState
    plain: Plain
    packed: Packed
    latest: Latest
    kind: int

    @property
    def named(self) -> bool:
        """Whether a name in the history says that there is such a snapshot."""
        return (self.plain, self.packed) != ("missing", "missing")

    @property
    def whole_file(self) -> bool:
        """Whether the history has it, in either form."""
        return "present" in (self.plain, self.packed)

    @property
    def bad_file(self) -> bool:
        """Whether a form that is there is not whole."""
        return self.plain == "damaged" or self.packed in ("damaged", "early end")

    @property
    def lives(self) -> bool:
        """The rule: any whole copy brings it back, if a row or a name still tells of it."""
        if self.row == "present" or self.whole_file:
            return True
        return self.latest == "right" and (self.row == "damaged" or self.named)

    @property
    def known(self) -> bool:
        """Whether anything but ``latest.json`` tells that it was ever there."""
        return self.row != "missing" or self.named

    @property
    def row_code(self) -> str:
        return (MISMATCH, SCHEMA, MISMATCH, SCHEMA)[self.kind % 4]

    @property
    def file_code(self) -> str:
        """The rule: the plain form's code; bytes that are no document are no snapshot.

        A gzip that is not whole does not match the checksum that it carries itself.
        """
        if self.plain == "damaged":
            return (MISMATCH, SCHEMA)[self.kind // 4 % 2]
        return MISMATCH

    @property
    def code(self) -> str:
        """The rule: the reason code is that of the first thing that is wrong, the row's first."""
        return self.row_code if self.row == "damaged" else self.file_code


def cases(row: RowState) -> list[Case]:
    states = itertools.product(PLAIN, PACKED, LATEST)
    return [Case(row, *state, kind=n + n // 8) for n, state in enumerate(states)]


class SnapshotStage:
    """A run with an older, whole snapshot and a newest one, whose copies are spoilt."""

    def __init__(self, fleet: Fleet, case: Case, older: Snapshot, newest: Snapshot) -> None:
        self.fleet, self.case = fleet, case
        self.older, self.newest = older, newest
        self.run_id = newest.run_id
        self.top = fleet.checkpoints / self.run_id
        self.latest = self.top / "latest.json"
        self.plain = self.top / "history" / f"{newest.snapshot_id}.json"
        self.packed = self.plain.with_name(f"{self.plain.name}.gz")

    def spoil(self) -> None:
        case = self.case
        data = self.plain.read_bytes()
        assert data == to_file(self.newest)
        self._spoil_row(data)
        if case.plain == "missing":
            self.plain.unlink()
        elif case.plain == "damaged":
            changed = data.replace(b"NEWEST", b"OTHERS")
            self.plain.write_bytes(data[:-20] if case.kind // 4 % 2 else changed)
        if case.packed != "missing":
            raw = packed(data)
            spoilt = {"damaged": raw[:-6] + bytes([raw[-6] ^ 4]) + raw[-5:], "early end": raw[:-5]}
            self.packed.write_bytes(spoilt.get(case.packed, raw))
        if case.latest in ("missing", "directory"):
            self.latest.unlink()
        if case.latest == "directory":
            self.latest.mkdir()
            (self.latest / "notes.txt").write_text("a person's")
        elif case.latest == "damaged":
            self.latest.write_bytes(data.replace(b"NEWEST", b"OTHERS"))

    def _spoil_row(self, data: bytes) -> None:
        sql, newest = self.fleet.sql, self.newest.snapshot_id
        if self.case.row == "missing":
            sql("DELETE FROM snapshots WHERE id = :id", id=newest)
        elif self.case.row == "damaged":
            bad = (
                "document_json = replace(document_json, 'NEWEST', 'OTHERS')",
                "document_json = substr(document_json, 1, 200)",
                f"digest = '{'0' * 64}'",
                "source_details_json = '[{'",
            )[self.case.kind % 4]
            sql(f"UPDATE snapshots SET {bad} WHERE id = :id", id=newest)
        elif (self.case.plain, self.case.packed) == ("missing", "present"):
            sql(
                "UPDATE snapshots SET compressed_at = timestamp, gzip_digest = :digest,"
                " gzip_bytes = 1 WHERE id = :id",
                digest=packed_digest(data),
                id=newest,
            )

    def is_newest(self, got: Snapshot) -> None:
        assert to_file(got) == to_file(self.newest), self.case

    def is_older(self, got: Snapshot) -> None:
        assert to_file(got) == to_file(self.older), self.case

    async def rest_is_readable(self) -> None:
        got = await self.fleet.do(SnapshotGet(self.older.snapshot_id))
        self.is_older(got)
        assert got.warnings == [], self.case
        page = await self.fleet.do(SnapshotList(self.run_id))
        assert self.older.snapshot_id in [each.snapshot_id for each in page.snapshots], self.case

    async def refused(self, request: SnapshotGet | SnapshotLatest) -> FleetError:
        with pytest.raises(FleetError) as refused:
            await self.fleet.do(request)
        error = refused.value
        assert self.newest.snapshot_id in f"{error.message} {error.values}", self.case
        return error

    def latest_is_never_wrong(self) -> None:
        """``latest.json`` is a whole snapshot of this run, or what it was spoilt to be."""
        if self.latest.is_file() and self.case.latest != "damaged":
            assert self.latest.read_bytes() in (to_file(self.older), to_file(self.newest))


def packed_digest(data: bytes) -> str:
    return hashlib.sha256(packed(data)).hexdigest()


def outcome(summary: str) -> DeclaredOutcome:
    return DeclaredOutcome(kind="shell", name="pytest", result="PASS", summary=summary)


async def record(fleet: Fleet, run_id: str, note: str) -> Snapshot:
    return await fleet.do(SnapshotRecord(run_id, command_outcomes=[outcome(note)]))


async def staged(fleet: Fleet, some: Iterable[Case]) -> list[SnapshotStage]:
    """Give each case a run of its own; the clock goes back between the two snapshots of some."""
    stages = []
    for number, case in enumerate(some):
        older = await record(fleet, f"run-{number}", "OLDER NOTE")
        fleet.clock.step(-MINUTE if number % 3 else MINUTE)
        newest = await record(fleet, f"run-{number}", "NEWEST NOTE")
        stages.append(SnapshotStage(fleet, case, older, newest))
    await fleet.settle()
    for stage in stages:
        stage.spoil()
    return stages


async def check_served(stage: SnapshotStage, *, named: bool) -> None:
    """The rule for one snapshot, asked for by its id or as the newest one of its run."""
    case, found = stage.case, stage.newest.snapshot_id
    request = SnapshotGet(found) if named else SnapshotLatest(stage.run_id)
    if case.lives:
        got = await stage.fleet.do(request)
        stage.is_newest(got)
        said = "\n".join(got.warnings)
        restored = f"the database row of {found} was {case.row}; it was restored from its file"
        assert (restored in said) == (case.row != "present"), case
        assert bool(got.warnings) == (case.row != "present"), case
        again = await stage.fleet.do(request)
        assert again.warnings == [], case
    elif case.row == "damaged":
        error = await stage.refused(request)
        assert (type(error).kind, isinstance(error, Corrupt)) == (case.row_code, True), case
    elif not named:
        got = await stage.fleet.do(request)
        stage.is_older(got)
        said = "\n".join(got.warnings)
        assert ("it stays in place" in said) == case.named, case
    elif case.named:
        assert (await stage.refused(request)).kind == case.file_code, case
    else:
        assert isinstance(await stage.refused(request), NotFound), case


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("named", [True, False])
async def test_what_is_served(fleet: Fleet, row: RowState, named: bool) -> None:
    for stage in await staged(fleet, cases(row)):
        await check_served(stage, named=named)
        await stage.rest_is_readable()
        stage.latest_is_never_wrong()


@pytest.mark.parametrize("row", ROWS)
async def test_what_is_listed_is_what_has_a_row(fleet: Fleet, row: RowState) -> None:
    for stage in await staged(fleet, cases(row)):
        page = await fleet.do(SnapshotList(stage.run_id))
        rows = [stage.newest, stage.older] if row != "missing" else [stage.older]
        assert [each.snapshot_id for each in page.snapshots] == [e.snapshot_id for e in rows]
        assert page.total == len(rows)


def of(found: Findings, subject: str) -> list[tuple[bool, bool, str | None]]:
    return [(f.ok, f.fixed, f.reason_code) for f in found.findings if f.subject == subject]


@pytest.mark.parametrize("row", ROWS)
async def test_what_verify_finds(fleet: Fleet, row: RowState) -> None:
    for stage in await staged(fleet, cases(row)):
        case = stage.case
        before = fleet.files()
        found = await fleet.do(SnapshotVerify(stage.run_id))
        assert fleet.files() == before, case
        whole = row == "present" and case.named and not case.bad_file
        expected = [(True, False, None)] if whole else [(False, False, case.code)]
        assert of(found, stage.newest.snapshot_id) == (expected if case.known else []), case
        assert of(found, stage.older.snapshot_id) == [(True, False, None)], case
        bad_latest = of(found, str(stage.latest))
        assert bad_latest in ([], [(False, False, MISMATCH)])
        if case.latest in ("missing", "directory"):
            assert bad_latest, case
        elif case.latest == "right" and case.known:
            assert not bad_latest, case
        elif case.latest == "damaged" and row == "present":
            assert bad_latest, case
        assert found.ok == all(f.ok for f in found.findings), case


@pytest.mark.parametrize("row", ROWS)
async def test_what_verify_repairs(fleet: Fleet, row: RowState) -> None:
    for stage in await staged(fleet, cases(row)):
        case = stage.case
        found = await fleet.do(SnapshotVerify(stage.run_id, repair=True))
        assert all(f.fixed or f.ok or not case.lives for f in found.findings), (case, found)
        again = await fleet.do(SnapshotVerify(stage.run_id))
        stage.latest_is_never_wrong()
        if case.lives:
            assert again.ok, (case, again)
            stage.is_newest(await fleet.do(SnapshotGet(stage.newest.snapshot_id)))
            assert stage.latest.read_bytes() == to_file(stage.newest), case
            files = [path for path in (stage.plain, stage.packed) if path.is_file()]
            assert files, case
            for file in files:
                raw = file.read_bytes()
                data = gzip.decompress(raw) if file == stage.packed else raw
                assert data == to_file(stage.newest), case
        elif case.known:
            assert not found.ok, case
            assert not again.ok, case
            assert of(again, str(stage.latest)) == [], case
            assert stage.latest.read_bytes() == to_file(stage.older), case
        else:
            assert again.ok, (case, again)
            assert stage.latest.read_bytes() == to_file(stage.older), case
        if case.latest == "directory" and not stage.latest.is_dir():
            (aside,) = stage.top.glob("latest.json.aside-*/notes.txt")
            assert aside.read_text() == "a person's", case
        await stage.rest_is_readable()


@pytest.mark.parametrize("row", ROWS)
async def test_what_a_start_makes_of_it(tmp_path: Path, row: RowState) -> None:
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        stages = await staged(fleet, cases(row))
    async with opened(tmp_path, clock=clock) as fleet:
        await fleet.settle()
        for stage in stages:
            stage.fleet = fleet
            case = stage.case
            stage.latest_is_never_wrong()
            # A lost copy is back already; a damaged one shows when it is read.
            if row == "present":
                assert stage.plain.is_file() or stage.packed.is_file(), case
            here = case
            if row == "missing" and case.lives:
                here = msgspec.structs.replace(case, row="present")
            if case.latest in ("missing", "directory"):
                stands = case.lives and (row != "damaged" or case.named)
                wanted = stage.newest if stands else stage.older
                assert stage.latest.read_bytes() == to_file(wanted), case
            stage.case = here
            await check_served(stage, named=True)
            stage.case = case
            await stage.rest_is_readable()
            assert not list(stage.top.rglob(".tmp-*"))


def damages(data: bytes) -> Iterable[bytes]:
    """Yield the bytes with each of them changed, and cut at each length."""
    for place in range(len(data)):
        yield data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]
    for length in range(len(data)):
        yield data[:length]


def is_document(data: bytes) -> bool:
    """Whether bytes are a JSON object that is sealed by a checksum which can be compared."""
    try:
        told = json.loads(data)["integrity"]
        sealed = (told.pop("algorithm"), told.pop("format_version")) == ("sha256", 1)
        return sealed and list(told) == ["digest"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


async def old(fleet: Fleet) -> Snapshot:
    """Return a snapshot of a run that has a newer one."""
    taken = await record(fleet, "run-1", 'A NOTE, with "marks" and äöü')
    fleet.clock.pass_by(MINUTE)
    await record(fleet, "run-1", "the newest")
    return taken


async def test_whichever_byte_of_a_file_is_changed_and_wherever_it_is_cut_it_is_noticed(
    fleet: Fleet,
) -> None:
    snapshot = await old(fleet)
    path = fleet.checkpoints / "run-1" / "history" / f"{snapshot.snapshot_id}.json"
    data = path.read_bytes()
    codes = set()
    for bad in damages(data):
        path.write_bytes(bad)
        found = read_forms(fleet.engine.backups["snapshot"], RecordFile("run-1", path.stem))
        if found.trouble is None:  # all that may be missing is the end of the line
            assert found.record is not None
            assert bad == data[:-1]
            continue
        assert isinstance(found.trouble, Corrupt)
        assert found.record is None
        expected = MISMATCH if is_document(bad) else SCHEMA
        assert found.trouble.kind == expected, bad
        codes.add(found.trouble.kind)
    assert codes == {MISMATCH, SCHEMA}


async def test_whichever_byte_of_a_compressed_file_is_changed_it_is_never_served_wrong(
    fleet: Fleet,
) -> None:
    snapshot = await old(fleet)
    path = fleet.checkpoints / "run-1" / "history" / f"{snapshot.snapshot_id}.json"
    raw = packed(path.read_bytes())
    path.unlink()
    file = path.with_name(f"{path.name}.gz")
    harmless = 0
    for bad in damages(raw):
        file.write_bytes(bad)
        found = read_forms(fleet.engine.backups["snapshot"], RecordFile("run-1", path.stem))
        if found.trouble is None:  # a time or a system in the head, say: nothing that counts
            assert found.record is not None
            assert to_file(found.record) == to_file(snapshot)
            harmless += 1
        else:
            assert found.record is None
            assert isinstance(found.trouble, Corrupt)
            assert found.trouble.kind == MISMATCH
    assert harmless < 10


async def test_verify_notices_whatever_is_changed_in_either_form(fleet: Fleet) -> None:
    """Also what hurts nothing: each form has a checksum of its own in the row."""
    snapshot = await old(fleet)
    fleet.clock.pass_by(2 * DAY)
    path = fleet.checkpoints / "run-1" / "history" / f"{snapshot.snapshot_id}.json"
    request = SnapshotVerify(snapshot_id=snapshot.snapshot_id)
    for file in (path, path.with_name(f"{path.name}.gz")):
        if file != path:
            await compress(fleet.engine)
        raw = file.read_bytes()
        for number, bad in enumerate(damages(raw)):
            if number % 5 and number > 20 and number != len(raw) - 1:
                continue
            file.write_bytes(bad)
            (finding,) = (await fleet.do(request)).findings
            assert not finding.ok, bad
            expected = SCHEMA if file == path and not is_document(bad) else MISMATCH
            assert finding.reason_code == expected, bad
        file.write_bytes(raw)
        assert (await fleet.do(request)).ok


async def test_a_name_that_is_nobodys_is_told_with_the_path_where_it_lies(fleet: Fleet) -> None:
    snapshot = await old(fleet)
    path = fleet.checkpoints / "run-1" / "history" / f"{snapshot.snapshot_id}.json"
    path.unlink()
    path.mkdir()
    await fleet.do(SnapshotVerify(repair=True))  # puts it aside
    told = [f.subject for f in (await fleet.do(SnapshotVerify())).findings if f.check == "name"]
    assert [Path(each or "").parent for each in told] == [path.parent]


async def test_a_latest_json_that_cannot_be_read_is_noticed_and_written_again(
    fleet: Fleet,
) -> None:
    await old(fleet)
    latest = fleet.checkpoints / "run-1" / "latest.json"
    whole = latest.read_bytes()
    os.truncate(latest, FILE_MAX + 1)  # also root, who reads everything, does not read that
    (told,) = [f for f in (await fleet.do(SnapshotVerify())).findings if not f.ok]
    assert (told.check, told.reason_code) == ("latest", MISMATCH)
    assert "is unreadable" in told.detail
    assert (await fleet.do(SnapshotVerify(repair=True))).ok
    assert latest.read_bytes() == whole


async def test_a_latest_json_that_is_found_cut_is_mended_at_once(fleet: Fleet) -> None:
    """Also where only one snapshot is verified, and where the newest one has no whole copy."""
    older = await old(fleet)
    newest = await fleet.do(SnapshotLatest("run-1"))
    latest = fleet.checkpoints / "run-1" / "latest.json"
    cut = to_file(newest)[:100]
    for what in (SnapshotVerify("run-1"), SnapshotVerify(snapshot_id=newest.snapshot_id)):
        latest.write_bytes(cut)
        (told,) = [f for f in (await fleet.do(what)).findings if not f.ok]
        assert (told.check, told.subject) == ("latest", str(latest))
        (told,) = [
            f
            for f in (await fleet.do(msgspec.structs.replace(what, repair=True))).findings
            if not f.ok
        ]
        assert (told.check, told.fixed) == ("latest", True)
        assert latest.read_bytes() == to_file(newest)
    (fleet.checkpoints / "run-1" / "history" / f"{newest.snapshot_id}.json").write_bytes(cut)
    fleet.sql("UPDATE snapshots SET digest = 'no' WHERE id = :id", id=newest.snapshot_id)
    latest.write_bytes(cut)
    found = await fleet.do(SnapshotVerify("run-1", repair=True))
    assert of(found, str(latest)) == [(False, True, MISMATCH)]
    assert of(found, newest.snapshot_id)[0][:2] == (False, False)
    assert latest.read_bytes() == to_file(older)


async def test_a_row_whose_damage_makes_it_the_newest_is_not_served_as_that(fleet: Fleet) -> None:
    first = await old(fleet)
    newest = await fleet.do(SnapshotLatest("run-1"))
    fleet.sql("UPDATE snapshots SET seq = 999999 WHERE id = :id", id=first.snapshot_id)
    got = await fleet.do(SnapshotLatest("run-1"))
    assert got.snapshot_id == newest.snapshot_id != first.snapshot_id
    assert got.warnings == [
        f"the database row of {first.snapshot_id} was damaged; it was restored from its file"
    ]
