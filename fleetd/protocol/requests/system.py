"""Requests about the daemon itself."""

from typing import Any, ClassVar

from msgspec import Struct

from ..records import Finding, Record
from ..request import LongMutation, Query
from ..status import Status
from ..types import MissionId, MissionStatus, Name, Path, RunStatus


class Paths(Record, frozen=True, kw_only=True):
    """Where a daemon keeps its things."""

    database: str
    checkpoints: str
    socket: str
    config: str


class Hello(Record, frozen=True, kw_only=True):
    """Who answers."""

    name: str
    version: str
    protocol: int
    pid: int
    started_at: str
    paths: Paths
    sqlite_version: str


class SystemHello(Query[Hello], frozen=True):
    """Greet the daemon; a client that names its protocol is told when it does not fit."""

    method: ClassVar[str] = "system.hello"
    client: str | None = None
    protocol: int | None = None


class SystemStatus(Query[Status], frozen=True):
    """Counts, missions in progress, recovery candidates, sizes, and how busy the daemon is."""

    method: ClassVar[str] = "system.status"


class Check(Record, frozen=True, kw_only=True):
    """One check of the daemon's health; ``detail`` says what was seen.

    Without what a ``vital`` check looks at, the daemon does not keep what it promises; of any other
    a failure is a warning. ``restart_mends`` says that a failure lies in this process, so that a
    new one would be free of it: a full disk or another program's lock does not.
    """

    name: str
    ok: bool
    detail: str
    vital: bool
    restart_mends: bool


class Health(Record, frozen=True, kw_only=True):
    """Whether the daemon works: ``ok`` when every vital check is.

    ``restart_mends`` when a check failed that a restart would mend: then systemd's watchdog is not
    fed.
    """

    ok: bool
    restart_mends: bool
    checks: list[Check]


class SystemHealth(Query[Health], frozen=True):
    """Check all that the daemon's work depends on, with a round trip through the database."""

    method: ClassVar[str] = "system.health"


class Setting(Record, frozen=True, kw_only=True):
    """One value in force and where it came from."""

    key: str
    value: Any
    origin: str


class Settings(Record, frozen=True, kw_only=True):
    """Every value in force."""

    settings: list[Setting]


class SystemConfig(Query[Settings], frozen=True):
    """Every value in force in the daemon, and its origin."""

    method: ClassVar[str] = "system.config"


class Findings(Record, frozen=True, kw_only=True):
    """What a check found; ``ok`` when nothing is wrong or everything was mended."""

    ok: bool
    findings: list[Finding]


class SystemDoctor(LongMutation[Findings], frozen=True):
    """Look for damage in database, backups and permissions; mend what can be mended."""

    method: ClassVar[str] = "system.doctor"
    fix: bool = False


class BackupResult(Record, frozen=True, kw_only=True):
    """Where the copy of the database lies and how large it is."""

    path: str
    size_bytes: int


class SystemBackup(LongMutation[BackupResult], frozen=True):
    """Write a consistent copy of the database to an absolute path that does not exist yet."""

    method: ClassVar[str] = "system.backup"
    path: Path


class ForgottenMission(Record, frozen=True, kw_only=True):
    """A mission that would be forgotten, and the bytes of its files."""

    mission_id: str
    title: str
    status: MissionStatus
    bytes: int


class ForgottenRun(Record, frozen=True, kw_only=True):
    """A run that would lose snapshots, all of them or some, and the bytes of their files."""

    run_id: str
    status: RunStatus
    snapshots: int
    bytes: int


class Forgotten(Record, frozen=True, kw_only=True):
    """How many of each go, or went; ``bytes`` are those of the files.

    ``runs`` are those of which nothing stays; ``snapshots`` are theirs and those of other runs that
    hold something of the missions.
    ``shared`` are the ``shared_missions`` in which others worked too: they stay, and still mention
    what was forgotten. ``details``, ``run_details`` and ``living_agents`` are filled for a
    ``dry_run`` only: an answer must not keep what was forgotten.
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
    files: int = 0
    bytes: int = 0
    shared_missions: int = 0
    shared: list[MissionId] = []
    details: list[ForgottenMission] = []
    run_details: list[ForgottenRun] = []
    living_agents: list[str] = []
    warnings: list[str] = []


class SystemForget(LongMutation[Forgotten], frozen=True):
    """Forget a mission, a session's agents or a whole project: rows, files and their bytes.

    Exactly one of the three is named. Unlike ``mission.delete`` it takes missions in progress too,
    and leaves no text in the database file. ``project_dir`` means everything below it as well.
    """

    method: ClassVar[str] = "system.forget"
    mission_id: MissionId | None = None
    session_id: Name | None = None
    project_dir: Path | None = None
    dry_run: bool = False


class Metrics(Record, frozen=True, kw_only=True):
    """Figures in Prometheus' text exposition format 0.0.4; docs/operations.md explains each."""

    text: str


class SystemMetrics(Query[Metrics], frozen=True):
    """Figures about the daemon as text."""

    method: ClassVar[str] = "system.metrics"


class OpenRpc(Struct, frozen=True):
    """The OpenRPC document."""

    openrpc: str
    info: dict[str, Any]
    methods: list[dict[str, Any]]
    components: dict[str, Any]


class RpcDiscover(Query[OpenRpc], frozen=True):
    """The description of every method, generated from the Structs."""

    method: ClassVar[str] = "rpc.discover"
