"""API-301 to API-312 of the test plan: one method per route, over the socket of a real daemon."""

import json
import re
import time

import pytest

from fleetd.protocol.errors import InvalidParams, NotFound
from fleetd.protocol.timestamps import to_ms

PATIENCE_S = 30.0
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SUMMARY = {
    "id",
    "mission_id",
    "timestamp",
    "trigger",
    "trigger_details",
    "progress_percent",
    "sortie_count",
    "lock_count",
    "message_count",
    "size_bytes",
    "consumed_at",
    "undo",
}
CONTEXT = {
    "last_action",
    "next_steps",
    "blockers",
    "files_modified",
    "mission_summary",
    "elapsed_time_ms",
    "last_activity_at",
}


@pytest.fixture
def call(connect):
    """Return a function that calls a method with plain JSON, as any tool builder would."""
    client = connect()

    def send(method, **params):
        return client.call_raw(method, params)

    return send


@pytest.fixture
def mission(call, home):
    """Return a mission in progress with a sortie done, one begun, a lock and a letter."""
    sorties = [{"title": f"S{n}", "files": [f"src/{n}.py"]} for n in range(4)]
    made = call(
        "mission.create",
        title="Test Mission",
        project_dir=str(home / "project"),
        sorties=sorties,
    )
    listed = call("sortie.list", mission_id=made["id"])["sorties"]
    call("sortie.complete", sortie_id=listed[0]["id"], agent_id="dispatch-001")
    call("sortie.start", sortie_id=listed[1]["id"], agent_id="spec-1")
    call("lock.acquire", file="src/1.py", agent_id="spec-1", mission_id=made["id"])
    letter = {"from": "dispatch-001", "to": ["spec-1"], "subject": "Review"}
    call("message.send", mission_id=made["id"], **letter)
    return made


def create(call, mission, **more):
    return call("checkpoint.create", mission_id=mission["id"], created_by="dispatch-001", **more)


def with_file(call, checkpoint):
    """Return a checkpoint once its file is written.

    ``checkpoint.create`` waits a second for that, which is too short on a busy computer.
    """
    deadline = time.monotonic() + PATIENCE_S
    while checkpoint["backed_up_at"] is None:
        assert time.monotonic() < deadline, checkpoint["warnings"]
        time.sleep(0.02)
        checkpoint = call("checkpoint.get", checkpoint_id=checkpoint["id"])
    return checkpoint


@pytest.mark.case("API-301")
def test_API_301_create_a_checkpoint(call, mission, home):
    checkpoint = with_file(
        call, create(call, mission, trigger="manual", trigger_details="Before refactoring")
    )

    assert re.fullmatch(r"chk-[0-9a-f]{8}", checkpoint["id"])
    assert TIME.fullmatch(checkpoint["timestamp"])
    assert checkpoint["mission_id"] == mission["id"]
    assert checkpoint["trigger"] == "manual"
    assert checkpoint["trigger_details"] == "Before refactoring"
    assert checkpoint["progress_percent"] == 25
    assert checkpoint["created_by"] == "dispatch-001"
    assert checkpoint["version"] == "1.0.0"
    assert len(checkpoint["sorties"]) == 4
    assert [lock["file"] for lock in checkpoint["active_locks"]] == ["src/1.py"]
    assert [letter["subject"] for letter in checkpoint["pending_messages"]] == ["Review"]
    assert set(checkpoint["recovery_context"]) == CONTEXT
    assert checkpoint["storage_locations"] == ["sqlite", "file"]
    assert checkpoint["warnings"] == []
    path = home / "flightline" / "checkpoints" / mission["id"] / f"{checkpoint['id']}.json"
    assert json.loads(path.read_bytes())["integrity"] == checkpoint["integrity"]


@pytest.mark.case("API-301")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"trigger": "whim"}, "trigger"),
        ({"created_by": ""}, "created_by"),
        ({"mission_id": "../etc"}, "mission_id"),
        ({"trigger_details": 7}, "trigger_details"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_API_301_a_wrong_parameter_is_named_and_nothing_stored(call, mission, change, field):
    with pytest.raises(InvalidParams) as refused:
        call("checkpoint.create", **{"mission_id": mission["id"]} | change)

    assert field in json.dumps([refused.value.message, refused.value.values])
    assert call("checkpoint.list", mission_id=mission["id"], trigger="manual")["total"] == 0


@pytest.mark.case("API-302")
def test_API_302_list_checkpoints(call, mission):
    ids = [create(call, mission)["id"] for _ in range(3)]

    page = call("checkpoint.list", mission_id=mission["id"])

    # The milestone that the first sortie passed is the oldest of them.
    assert [summary["id"] for summary in page["checkpoints"]][:3] == ids[::-1]
    assert page["total"] == 4
    assert set(page["checkpoints"][0]) == SUMMARY
    oldest = page["checkpoints"][3]
    assert (oldest["trigger"], oldest["progress_percent"]) == ("progress", 25)
    assert (oldest["sortie_count"], oldest["lock_count"], oldest["message_count"]) == (4, 0, 0)
    stamps = [summary["timestamp"] for summary in page["checkpoints"]]
    assert stamps == sorted(stamps, reverse=True)


@pytest.mark.case("API-303")
def test_API_303_get_a_checkpoint(call, mission):
    checkpoint = create(call, mission)

    assert call("checkpoint.get", checkpoint_id=checkpoint["id"]) == checkpoint
    assert call("checkpoint.get", checkpoint_id=checkpoint["id"][:10])["id"] == checkpoint["id"]
    assert call("checkpoint.latest", mission_id=mission["id"]) == checkpoint


@pytest.mark.case("API-304")
def test_API_304_recover_from_a_checkpoint(call, mission):
    checkpoint = create(call, mission)
    second = call("sortie.list", mission_id=mission["id"])["sorties"][1]
    call("sortie.progress", sortie_id=second["id"], percent=80, notes="Too far")

    result = call(
        "recovery.restore",
        checkpoint_id=checkpoint["id"],
        dry_run=False,
        agent_id="dispatch-001",
    )

    assert result["success"] is True
    assert result["dry_run"] is False
    assert result["would_restore"] is None
    assert result["checkpoint_id"] == checkpoint["id"]
    assert result["mission_id"] == mission["id"]
    assert result["restored"] == {"sorties": 4, "locks": 1, "messages": 1}
    assert (result["kept"], result["released_locks"]) == ([], [])
    assert (result["errors"], result["warnings"]) == ([], [])
    assert call("sortie.get", sortie_id=second["id"])["progress"] == 0
    consumed = call("checkpoint.get", checkpoint_id=checkpoint["id"])["consumed_at"]
    assert TIME.fullmatch(consumed)
    undo = call("checkpoint.get", checkpoint_id=result["undo_checkpoint_id"])
    assert undo["undo"] is True
    assert undo["trigger"] == "compaction"
    assert undo["trigger_details"] == f"Before recovery from {checkpoint['id']}"
    (recovery,) = call("recovery.list", mission_id=mission["id"])["recoveries"]
    assert (recovery["id"], recovery["agent_id"]) == (result["recovery_id"], "dispatch-001")


@pytest.mark.case("API-305")
def test_API_305_delete_a_checkpoint(call, mission, home):
    checkpoint = create(call, mission)
    folder = home / "flightline" / "checkpoints" / mission["id"]

    assert call("checkpoint.delete", checkpoint_id=checkpoint["id"]) == {"deleted": True}

    assert not (folder / f"{checkpoint['id']}.json").exists()
    remaining = call("checkpoint.latest", mission_id=mission["id"])
    assert (folder / "latest.json").resolve().name == f"{remaining['id']}.json"
    for method in ("checkpoint.get", "checkpoint.delete"):
        with pytest.raises(NotFound):
            call(method, checkpoint_id=checkpoint["id"])


@pytest.mark.case("API-306")
def test_API_306_prune_old_checkpoints(call, mission, home):
    ids = [create(call, mission)["id"] for _ in range(5)]
    oldest = call("checkpoint.list", mission_id=mission["id"])["checkpoints"][-1]["id"]
    folder = home / "flightline" / "checkpoints" / mission["id"]

    nothing = call("checkpoint.prune", older_than_days=7, mission_id=None, dry_run=False)
    shown = call("checkpoint.prune", older_than_days=0, keep_per_mission=3, dry_run=True)
    assert call("checkpoint.list")["total"] == 6
    pruned = call("checkpoint.prune", older_than_days=0, keep_per_mission=3)

    assert nothing == {"deleted": 0, "freed_bytes": 0, "details": []}
    assert shown == pruned
    assert pruned["deleted"] == 3
    assert [detail["id"] for detail in pruned["details"]] == [oldest, *ids[:2]]
    assert {detail["mission_id"] for detail in pruned["details"]} == {mission["id"]}
    assert set(pruned["details"][0]) == {"id", "mission_id", "timestamp", "trigger", "size_bytes"}
    assert pruned["freed_bytes"] == sum(d["size_bytes"] for d in pruned["details"])
    left = sorted(path.name for path in folder.glob("chk-*.json"))
    assert left == sorted(f"{checkpoint_id}.json" for checkpoint_id in ids[2:])


@pytest.mark.case("API-307")
def test_API_307_recovery_returns_the_recovery_context(call, mission):
    create(call, mission)

    result = call("recovery.restore", mission_id=mission["id"])

    context = result["recovery_context"]
    assert set(context) == CONTEXT
    assert context["mission_summary"] == "Test Mission"
    assert context["last_action"] == "dispatch-001 wrote to spec-1: “Review”"
    assert context["next_steps"] == [
        "S1 (in progress by spec-1)",
        "S2 (pending)",
        "S3 (pending)",
    ]
    assert context["blockers"] == []
    assert context["files_modified"] == ["src/1.py", "src/0.py"]
    assert context["elapsed_time_ms"] >= 0
    assert to_ms(context["last_activity_at"]) > 0
    assert context["mission_summary"] in result["prompt"]


@pytest.mark.case("API-308")
def test_API_308_dry_run_shows_and_changes_nothing(call, mission):
    checkpoint = create(call, mission)
    second = call("sortie.list", mission_id=mission["id"])["sorties"][1]
    call("sortie.progress", sortie_id=second["id"], percent=80, notes="Too far")
    before = call("event.list", since=0, limit=1_000)

    preview = call(
        "recovery.restore",
        checkpoint_id=checkpoint["id"],
        dry_run=True,
        agent_id="dispatch-001",
    )

    assert preview["dry_run"] is True
    assert preview["would_restore"] == [
        {
            "what": "sortie",
            "id": second["id"],
            "before": "in_progress 80%, spec-1",
            "after": "in_progress 0%, spec-1",
        }
    ]
    assert preview["restored"] == {"sorties": 4, "locks": 1, "messages": 1}
    assert preview["recovery_id"] is None
    assert preview["undo_checkpoint_id"] is None
    assert preview["prompt"].startswith("## Recovery Context")
    assert call("event.list", since=0, limit=1_000) == before
    assert call("sortie.get", sortie_id=second["id"])["progress"] == 80
    assert call("checkpoint.get", checkpoint_id=checkpoint["id"])["consumed_at"] is None
    assert call("recovery.list")["recoveries"] == []


@pytest.mark.case("API-309")
def test_API_309_list_by_mission(call, mission):
    other = call("mission.create", title="Other")
    mine, foreign = create(call, mission), create(call, other)

    page = call("checkpoint.list", mission_id=other["id"])

    assert [summary["id"] for summary in page["checkpoints"]] == [foreign["id"]]
    assert page["total"] == 1
    everything = call("checkpoint.list")
    assert {mine["id"], foreign["id"]} < {s["id"] for s in everything["checkpoints"]}
    with pytest.raises(NotFound, match="Mission not found: msn-00000000"):
        call("checkpoint.list", mission_id="msn-00000000")


@pytest.mark.case("API-310")
def test_API_310_list_with_a_limit(call, mission):
    ids = [create(call, mission, wait_for_backup=False)["id"] for _ in range(12)]

    few = call("checkpoint.list", mission_id=mission["id"], limit=2)
    usual = call("checkpoint.list", mission_id=mission["id"])

    assert [summary["id"] for summary in few["checkpoints"]] == [ids[11], ids[10]]
    assert few["total"] == usual["total"] == 13
    assert len(usual["checkpoints"]) == 10
    for limit in (0, -1, 1_001, "2", 1.5):
        with pytest.raises(InvalidParams, match="limit"):
            call("checkpoint.list", limit=limit)


@pytest.mark.case("API-311")
def test_API_311_prune_keeps_the_newest_of_every_mission(call, mission):
    other = call("mission.create", title="Other")
    call("mission.start", mission_id=other["id"])
    mine = [create(call, mission)["id"] for _ in range(4)]
    theirs = [create(call, other)["id"] for _ in range(2)]

    call("checkpoint.prune", older_than_days=0, keep_per_mission=3)

    def left(of):
        page = call("checkpoint.list", mission_id=of["id"])
        return [summary["id"] for summary in page["checkpoints"]]

    assert left(mission) == mine[:0:-1]
    assert left(other) == theirs[::-1]
    with pytest.raises(InvalidParams, match="keep_per_mission"):
        call("checkpoint.prune", keep_per_mission=0)


@pytest.mark.case("API-312")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("checkpoint.get", {"checkpoint_id": "chk-nonexistent"}),
        ("checkpoint.delete", {"checkpoint_id": "chk-nonexistent"}),
        ("recovery.restore", {"checkpoint_id": "chk-nonexistent"}),
        ("recovery.context", {"checkpoint_id": "chk-nonexistent"}),
        ("checkpoint.verify", {"checkpoint_id": "chk-nonexistent"}),
    ],
)
def test_API_312_a_checkpoint_that_does_not_exist_is_not_found(call, method, params):
    with pytest.raises(NotFound) as refused:
        call(method, **params)

    assert refused.value.code == -32001
    assert refused.value.data()["kind"] == "not_found"
    assert refused.value.message == "Checkpoint not found: chk-nonexistent"
    assert refused.value.hint
