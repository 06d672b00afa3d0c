"""A checkpoint lies in a row and in a file; either brings it back, neither is trusted blindly."""

import pytest
import trio

from fleetd.domain.checkpoints.codec import from_file
from fleetd.engine.jobs.liveness import scan
from fleetd.protocol.errors import Corrupt, NotFound
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import (
    CheckpointDelete,
    CheckpointGet,
    CheckpointLatest,
    CheckpointVerify,
)
from fleetd.protocol.requests.system import SystemDoctor
from tests.support import shared_store
from tests.support.copies import (
    BAD_FILES,
    BAD_ROWS,
    Damage,
    damage_file,
    damage_row,
    garble_row,
    leave,
    lose_file,
    lose_row,
)
from tests.support.fleet import HOUR, Fleet


async def two_checkpoints(fleet: Fleet) -> tuple[Mission, Checkpoint, Checkpoint]:
    mission = await fleet.mission(4)
    await fleet.work(mission, 0, "specialist-1")
    first = await fleet.checkpoint(mission, "first")
    fleet.clock.pass_by(1_000)
    return mission, first, await fleet.checkpoint(mission, "second")


def content(checkpoint: Checkpoint) -> tuple[object, ...]:
    return (checkpoint.id, checkpoint.integrity, checkpoint.sorties, checkpoint.recovery_context)


@pytest.mark.case("STR-006")
@pytest.mark.case("EDGE-003")
@pytest.mark.parametrize("damage", BAD_ROWS)
async def test_STR_006_EDGE_003_a_bad_row_is_healed_from_the_file_with_a_warning(
    fleet: Fleet, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    _, other, taken = await two_checkpoints(fleet)
    before = fleet.dump("events")
    damage(fleet, taken)
    got = await fleet.do(CheckpointGet(taken.id))
    what = "missing" if damage is lose_row else "damaged"
    assert content(got) == content(taken)
    warning = f"the database row of {taken.id} was {what}; it was restored from its file"
    assert got.warnings == [warning]
    assert warning in caplog.text
    assert [row["id"] for row in fleet.sql("SELECT id FROM checkpoints ORDER BY seq")] == [
        other.id,
        taken.id,
    ]
    again = await fleet.do(CheckpointGet(taken.id))
    assert (again.warnings, again.storage_locations) == ([], ["sqlite", "file"])
    after = fleet.dump("events")
    assert after["sorties"] == before["sorties"]
    assert after["missions"] == before["missions"]
    assert [row["digest"] for row in after["checkpoints"]] == [
        row["digest"] for row in before["checkpoints"]
    ]


@pytest.mark.case("STR-005")
@pytest.mark.parametrize("file", BAD_FILES)
async def test_STR_005_a_bad_file_does_not_matter_as_long_as_the_row_is_good(
    fleet: Fleet, file: Damage
) -> None:
    _, _, taken = await two_checkpoints(fleet)
    file(fleet, taken)
    assert await fleet.do(CheckpointGet(taken.id)) == taken


@pytest.mark.case("STR-006")
@pytest.mark.case("STR-008")
@pytest.mark.parametrize("row", BAD_ROWS)
@pytest.mark.parametrize("file", BAD_FILES)
async def test_STR_006_STR_008_nothing_is_served_when_both_are_bad(
    fleet: Fleet, row: Damage, file: Damage
) -> None:
    _, other, taken = await two_checkpoints(fleet)
    row(fleet, taken)
    file(fleet, taken)
    nothing_left = (row, file) == (lose_row, lose_file)
    with pytest.raises(NotFound if nothing_left else Corrupt) as error:
        await fleet.do(CheckpointGet(taken.id))
    assert taken.id in error.value.message
    if nothing_left:
        assert error.value.message == f"Checkpoint not found: {taken.id}"
        assert str(fleet.engine.store.where) in (error.value.hint or "")
        assert str(fleet.checkpoints) in (error.value.hint or "")
    assert content(await fleet.do(CheckpointGet(other.id))) == content(other)


@pytest.mark.parametrize("row", [leave, *BAD_ROWS])
@pytest.mark.parametrize("file", [leave, *BAD_FILES])
async def test_verify_tells_what_is_bad_and_repair_mends_what_one_good_copy_can(
    fleet: Fleet, row: Damage, file: Damage
) -> None:
    _, other, taken = await two_checkpoints(fleet)
    file(fleet, taken)
    row(fleet, taken)
    if (row, file) == (lose_row, lose_file):
        (gone,) = [f for f in (await fleet.do(CheckpointVerify())).findings if not f.ok]
        assert (gone.check, gone.detail) == (
            "latest",
            f"points at {taken.id}.json, which is missing",
        )
        assert (await fleet.do(CheckpointVerify(repair=True))).ok
        assert (await fleet.do(CheckpointVerify())).ok
        return
    intact = row is file is leave
    mendable = file is leave or row is leave

    seen = await fleet.do(CheckpointVerify())
    found = {finding.subject: finding for finding in seen.findings}
    assert found.keys() == {other.id, taken.id}
    assert found[other.id].ok
    assert (seen.ok, found[taken.id].ok, found[taken.id].fixed) == (intact, intact, False)
    if row is not leave:
        assert "database" in found[taken.id].detail or "not found" in found[taken.id].detail.lower()
    if file is not leave:
        assert "file" in found[taken.id].detail

    repaired = await fleet.do(CheckpointVerify(repair=True))
    (finding,) = [f for f in repaired.findings if f.subject == taken.id]
    assert finding.fixed == (mendable and not intact)
    assert repaired.ok == (intact or mendable)
    assert (await fleet.do(CheckpointVerify(checkpoint_id=other.id))).ok
    if mendable:
        assert (await fleet.do(CheckpointVerify())).ok
        assert content(await fleet.do(CheckpointGet(taken.id))) == content(taken)
        assert from_file(fleet.file_of(taken).read_bytes(), "").integrity == taken.integrity


def way_out(checkpoint: Checkpoint) -> str:
    return f"; no intact copy is left, delete it: fleetctl checkpoint delete {checkpoint.id}"


@pytest.mark.parametrize("row", [damage_row, garble_row])
@pytest.mark.parametrize("file", BAD_FILES)
async def test_the_way_out_when_both_are_bad_is_told_and_works(
    fleet: Fleet, row: Damage, file: Damage
) -> None:
    _, other, taken = await two_checkpoints(fleet)
    row(fleet, taken)
    file(fleet, taken)
    for request in (
        CheckpointVerify(),
        CheckpointVerify(repair=True),
        CheckpointVerify(checkpoint_id=taken.id),
        CheckpointVerify(checkpoint_id=taken.id[:10]),
        SystemDoctor(fix=True),
    ):
        (bad,) = [f for f in (await fleet.do(request)).findings if f.subject == taken.id]
        assert (bad.ok, bad.fixed) == (False, False)
        assert bad.detail.endswith(way_out(taken))

    assert (await fleet.do(CheckpointDelete(taken.id))).deleted
    await fleet.settle()
    assert not fleet.file_of(taken).exists()
    after = await fleet.do(CheckpointVerify())
    assert (after.ok, [f.subject for f in after.findings if f.check == "checkpoint"]) == (
        True,
        [other.id],
    )
    not_ours = {"disk", *shared_store.NOT_OURS}
    findings = (await fleet.do(SystemDoctor())).findings
    assert all(each.ok for each in findings if each.check not in not_ours)


async def test_no_way_out_is_told_while_one_copy_may_still_be_good(fleet: Fleet) -> None:
    _, other, taken = await two_checkpoints(fleet)
    damage_row(fleet, taken)
    # A copy among another mission's is bad there; the one in its own place heals the row.
    stray = fleet.checkpoints / "msn-00000000" / fleet.file_of(taken).name
    stray.parent.mkdir(mode=0o700)
    stray.write_bytes(fleet.file_of(taken).read_bytes())
    damage_file(fleet, other)
    details = [f.detail for f in (await fleet.do(CheckpointVerify())).findings if not f.ok]
    assert len(details) >= 2
    assert not any("no intact copy is left" in detail for detail in details)


async def test_no_way_out_is_told_of_a_file_of_a_newer_version(fleet: Fleet) -> None:
    _, _, taken = await two_checkpoints(fleet)
    damage_row(fleet, taken)
    file = fleet.file_of(taken)
    file.write_bytes(file.read_bytes().replace(b'"version":"', b'"version":"9'))
    (bad,) = [f for f in (await fleet.do(CheckpointVerify())).findings if f.subject == taken.id]
    assert "version" in bad.detail
    assert "no intact copy is left" not in bad.detail


async def test_verify_can_be_narrowed_to_a_mission_or_a_checkpoint(fleet: Fleet) -> None:
    mission, first, second = await two_checkpoints(fleet)
    other = await fleet.checkpoint(await fleet.mission(title="Another"))

    async def subjects(**narrow: str) -> set[str | None]:
        return {f.subject for f in (await fleet.do(CheckpointVerify(**narrow))).findings}

    assert await subjects() == {first.id, second.id, other.id}
    assert await subjects(mission_id=mission.id) == {first.id, second.id}
    assert await subjects(checkpoint_id=other.id) == {other.id}
    with pytest.raises(NotFound):
        await subjects(checkpoint_id="chk-00000000")


@pytest.mark.case("STR-006")
@pytest.mark.parametrize("row", BAD_ROWS)
async def test_STR_006_a_recovery_heals_the_row_it_needs_and_says_so(
    fleet: Fleet, row: Damage
) -> None:
    _, _, taken = await two_checkpoints(fleet)
    row(fleet, taken)
    result = await fleet.restore(taken)
    assert result.success
    assert result.checkpoint_id == taken.id
    what = "missing" if row is lose_row else "damaged"
    assert result.warnings[0].startswith(f"the database row of {taken.id} was {what}")
    assert "restored from its file" in result.warnings[0]


async def newest_unreadable(fleet: Fleet) -> tuple[Mission, Checkpoint, Checkpoint]:
    mission, first, second = await two_checkpoints(fleet)
    damage_row(fleet, second)
    damage_file(fleet, second)
    return mission, first, second


async def test_a_recovery_is_refused_when_nothing_readable_is_left(fleet: Fleet) -> None:
    mission, first, _ = await newest_unreadable(fleet)
    damage_row(fleet, first)
    damage_file(fleet, first)
    with pytest.raises(Corrupt, match=r"No checkpoint of mission .* can be used"):
        await fleet.restore(mission_id=mission.id)


async def test_of_many_intact_ones_only_the_number_is_told(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.engine.services.verify.LISTED", 1)
    missions = sorted(
        [(await two_checkpoints(fleet))[0] for _ in range(3)], key=lambda mission: mission.id
    )
    second = await fleet.do(CheckpointLatest(missions[2].id))
    lose_file(fleet, second)
    found = (await fleet.do(CheckpointVerify())).findings
    assert [f.check for f in found[:2]] == ["checkpoint", "checkpoint"]
    told = [(f.subject, f.detail) for f in found[2:]]
    assert told == [
        (missions[1].id, "2 checkpoints and names correct"),
        (missions[2].id, "1 checkpoints and names correct"),
        (second.id, "the file is missing"),
    ]


async def test_a_mission_whose_files_cannot_be_read_is_a_finding(fleet: Fleet) -> None:
    mission, _, _ = await two_checkpoints(fleet)
    other, third, fourth = await two_checkpoints(fleet)
    (fleet.checkpoints / mission.id).rename(fleet.checkpoints / "aside")
    (fleet.checkpoints / mission.id).write_text("in the way")
    found = await fleet.do(CheckpointVerify())
    assert not found.ok
    (bad,) = [f for f in found.findings if not f.ok]
    assert (bad.check, bad.subject) == ("files", str(fleet.checkpoints / mission.id))
    assert "Not a directory" in bad.detail
    assert {f.subject for f in found.findings if f.ok} == {third.id, fourth.id}
    assert other.id != mission.id

    fleet.checkpoints.rename(fleet.checkpoints.with_name("elsewhere"))
    fleet.checkpoints.write_text("in the way")
    for request in (CheckpointVerify(checkpoint_id=third.id), CheckpointVerify()):
        found = await fleet.do(request)
        assert {f.check for f in found.findings if not f.ok} == {"files"}


async def test_others_are_served_while_everything_is_verified(fleet: Fleet) -> None:
    mission, first, _ = await two_checkpoints(fleet)
    served: list[str] = []
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            for _ in range(5):
                await fleet.do(CheckpointGet(first.id))
                served.append("asked")

        nursery.start_soon(ask)
        await fleet.do(CheckpointVerify(mission_id=mission.id))
        served.append("verified")
    assert served.index("verified") > 0


async def test_a_mission_that_falls_silent_is_not_promised_a_damaged_checkpoint(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission()
    taken = await fleet.checkpoint(mission)
    await fleet.settle()
    damage_row(fleet, taken)
    damage_file(fleet, taken)
    fleet.clock.pass_by(HOUR)

    await scan(fleet.engine)

    (told,) = await fleet.events(mission, "context_compacted")
    promised = told.data["checkpoint_id"]
    assert promised != taken.id
    assert (await fleet.do(CheckpointGet(promised))).warnings == []
    assert (await fleet.restore(mission_id=mission.id)).checkpoint_id == promised


async def test_a_file_among_another_missions_is_not_mended_by_one_elsewhere(fleet: Fleet) -> None:
    file = fleet.file_of(await fleet.checkpoint(await fleet.mission()))
    stray = fleet.checkpoints / "msn-0badf00d" / file.name
    stray.parent.mkdir(mode=0o700)
    stray.write_bytes(file.read_bytes())
    for repair in (False, True, True):
        verdict = await fleet.do(CheckpointVerify(repair=repair))
        (found,) = (each for each in verdict.findings if not each.ok)
        assert (found.fixed, verdict.ok) == (False, False)
        assert str(stray) in found.detail
