"""Requests about the daemon itself."""

from typing import Any, ClassVar

from msgspec import Struct

from ..records import Finding, Record
from ..request import LongMutation, Query
from ..status import Status
from ..types import MissionId, MissionStatus, Name, Path, RunStatus


class Paths(Record, frozen=True, kw_only=True):
    """The paths that a daemon uses."""

    database: str
    checkpoints: str
    socket: str
    config: str


class Hello(Record, frozen=True, kw_only=True):
    """The daemon that answers."""

    name: str
    version: str
    protocol: int
    pid: int
    started_at: str
    paths: Paths
    sqlite_version: str


class SystemHello(Query[Hello], frozen=True):
    """Greet the daemon. A client that names an unsupported protocol receives an error."""

    method: ClassVar[str] = "system.hello"
    client: str | None = None
    protocol: int | None = None


class SystemStatus(Query[Status], frozen=True):
    """Return counts, missions in progress, recovery candidates, sizes and the daemon's load."""

    method: ClassVar[str] = "system.status"


class Check(Record, frozen=True, kw_only=True):
    """One check of the daemon's health, with its ``detail``.

    If a ``vital`` check fails, the daemon cannot keep its promises; the failure of any other check
    is a warning. ``restart_mends`` marks a failure of this process, which a restart repairs. A full
    disk or another program's lock is not one.
    """

    name: str
    ok: bool
    detail: str
    vital: bool
    restart_mends: bool


class Health(Record, frozen=True, kw_only=True):
    """Whether the daemon works: ``ok`` if every vital check passes.

    ``restart_mends`` is true if a check failed that a restart would repair; then systemd's watchdog
    is not fed.
    """

    ok: bool
    restart_mends: bool
    checks: list[Check]


class SystemHealth(Query[Health], frozen=True):
    """Check everything the daemon depends on, with a round trip through the database."""

    method: ClassVar[str] = "system.health"


class Setting(Record, frozen=True, kw_only=True):
    """One value in force, and its origin."""

    key: str
    value: Any
    origin: str


class Settings(Record, frozen=True, kw_only=True):
    """Every value in force."""

    settings: list[Setting]


class SystemConfig(Query[Settings], frozen=True):
    """Return every value in force in the daemon, with its origin."""

    method: ClassVar[str] = "system.config"


class Findings(Record, frozen=True, kw_only=True):
    """The findings of a check; ``ok`` if nothing is wrong or everything was repaired."""

    ok: bool
    findings: list[Finding]


class SystemDoctor(LongMutation[Findings], frozen=True):
    """Look for damage in database, backups and permissions; ``fix`` repairs it where possible."""

    method: ClassVar[str] = "system.doctor"
    fix: bool = False


class BackupResult(Record, frozen=True, kw_only=True):
    """The path and the size of the copy of the database."""

    path: str
    size_bytes: int


class SystemBackup(LongMutation[BackupResult], frozen=True):
    """Write a consistent copy of the database to an absolute path that does not exist yet."""

    method: ClassVar[str] = "system.backup"
    path: Path


class ForgottenMission(Record, frozen=True, kw_only=True):
    """A mission that would be forgotten, and the size of its files."""

    mission_id: str
    title: str
    status: MissionStatus
    bytes: int


class ForgottenRun(Record, frozen=True, kw_only=True):
    """A run that would lose some or all of its snapshots, and the size of their files."""

    run_id: str
    status: RunStatus
    snapshots: int
    bytes: int


class Forgotten(Record, frozen=True, kw_only=True):
    """The number of records deleted, or to delete; ``bytes`` is the size of the files.

    ``runs`` counts runs that go completely; ``snapshots`` counts theirs, and those of other runs
    that mention the missions. ``shared`` lists the ``shared_missions``, in which others worked too:
    they stay, and still mention the forgotten agents. ``details``, ``run_details`` and
    ``living_agents`` are filled for a ``dry_run`` only, so that no stored answer keeps names.
    """

    dry_run: bool
    missions: int
    sorties: int
    agents: int
    locks: int
    messages: int
    events: int
    checkpoints: int
    recoveries: int
    cursors: int
    runs: int = 0
    snapshots: int = 0
    notes: int = 0
    files: int = 0
    bytes: int = 0
    shared_missions: int = 0
    shared: list[MissionId] = []
    details: list[ForgottenMission] = []
    run_details: list[ForgottenRun] = []
    living_agents: list[str] = []
    warnings: list[str] = []


class SystemForget(LongMutation[Forgotten], frozen=True):
    """Forget a mission, a session's agents or a whole project: rows and files.

    Give exactly one of the three. Unlike ``mission.delete`` it also takes missions in progress, and
    leaves no text in the database file. ``project_dir`` includes everything below it.
    """

    method: ClassVar[str] = "system.forget"
    mission_id: MissionId | None = None
    session_id: Name | None = None
    project_dir: Path | None = None
    dry_run: bool = False


class Metrics(Record, frozen=True, kw_only=True):
    """Metrics in Prometheus' text exposition format 0.0.4; docs/metrics.md explains each."""

    text: str


class SystemMetrics(Query[Metrics], frozen=True):
    """Return metrics of the daemon as text."""

    method: ClassVar[str] = "system.metrics"


class OpenRpc(Struct, frozen=True):
    """The OpenRPC document."""

    openrpc: str
    info: dict[str, Any]
    methods: list[dict[str, Any]]
    components: dict[str, Any]


class RpcDiscover(Query[OpenRpc], frozen=True):
    """Return the description of every method, generated from the Structs."""

    method: ClassVar[str] = "rpc.discover"
