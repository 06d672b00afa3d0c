"""Every method and record of the wire by name; written by ``make generate``, do not edit."""

# The name of a method's request, whether it may change something, whether it may take long.
METHODS = {
    "system.hello": ("SystemHello", False, False),
    "system.status": ("SystemStatus", False, False),
    "system.health": ("SystemHealth", False, False),
    "system.config": ("SystemConfig", False, False),
    "system.doctor": ("SystemDoctor", True, True),
    "system.backup": ("SystemBackup", True, True),
    "system.forget": ("SystemForget", True, True),
    "system.metrics": ("SystemMetrics", False, False),
    "rpc.discover": ("RpcDiscover", False, False),
    "mission.create": ("MissionCreate", True, False),
    "mission.start": ("MissionStart", True, False),
    "mission.update": ("MissionUpdate", True, False),
    "mission.complete": ("MissionComplete", True, False),
    "mission.fail": ("MissionFail", True, False),
    "mission.cancel": ("MissionCancel", True, False),
    "mission.get": ("MissionGet", False, False),
    "mission.at": ("MissionAt", False, False),
    "mission.list": ("MissionList", False, False),
    "mission.current": ("MissionCurrent", False, False),
    "mission.select": ("MissionSelect", False, False),
    "mission.delete": ("MissionDelete", True, True),
    "sortie.create": ("SortieCreate", True, False),
    "sortie.update": ("SortieUpdate", True, False),
    "sortie.assign": ("SortieAssign", True, False),
    "sortie.start": ("SortieStart", True, False),
    "sortie.progress": ("SortieProgress", True, False),
    "sortie.block": ("SortieBlock", True, False),
    "sortie.unblock": ("SortieUnblock", True, False),
    "sortie.complete": ("SortieComplete", True, False),
    "sortie.fail": ("SortieFail", True, False),
    "sortie.get": ("SortieGet", False, False),
    "sortie.list": ("SortieList", False, False),
    "sortie.remove": ("SortieRemove", True, False),
    "agent.register": ("AgentRegister", True, False),
    "agent.heartbeat": ("AgentHeartbeat", True, False),
    "agent.note": ("AgentNote", True, False),
    "agent.get": ("AgentGet", False, False),
    "agent.list": ("AgentList", False, False),
    "agent.deregister": ("AgentDeregister", True, False),
    "agent.current": ("AgentCurrent", True, False),
    "session.list": ("SessionList", False, False),
    "attention.list": ("AttentionList", False, False),
    "attention.conflicts": ("AttentionConflicts", False, False),
    "machine.forget": ("MachineForget", True, False),
    "lock.acquire": ("LockAcquire", True, False),
    "lock.renew": ("LockRenew", True, False),
    "lock.release": ("LockRelease", True, False),
    "lock.force_release": ("LockForceRelease", True, False),
    "lock.check": ("LockCheck", False, False),
    "lock.list": ("LockList", False, False),
    "commit.check": ("CommitCheck", False, False),
    "message.send": ("MessageSend", True, False),
    "message.inbox": ("MessageInbox", True, False),
    "message.ack": ("MessageAck", True, False),
    "message.get": ("MessageGet", False, False),
    "message.list": ("MessageList", False, False),
    "message.requeue": ("MessageRequeue", True, False),
    "note.add": ("NoteAdd", True, False),
    "note.list": ("NoteList", False, False),
    "note.get": ("NoteGet", False, False),
    "note.withdraw": ("NoteWithdraw", True, False),
    "note.pin": ("NotePin", True, False),
    "event.append": ("EventAppend", True, False),
    "event.list": ("EventList", False, False),
    "event.subscribe": ("EventSubscribe", False, False),
    "event.unsubscribe": ("EventUnsubscribe", False, False),
    "cursor.get": ("CursorGet", False, False),
    "cursor.advance": ("CursorAdvance", True, False),
    "search.query": ("SearchQuery", False, False),
    "checkpoint.create": ("CheckpointCreate", True, False),
    "checkpoint.get": ("CheckpointGet", False, False),
    "checkpoint.latest": ("CheckpointLatest", False, False),
    "checkpoint.compare": ("CheckpointCompare", False, False),
    "checkpoint.list": ("CheckpointList", False, False),
    "checkpoint.delete": ("CheckpointDelete", True, False),
    "checkpoint.verify": ("CheckpointVerify", True, True),
    "checkpoint.prune": ("CheckpointPrune", True, True),
    "checkpoint.pull": ("CheckpointPull", True, True),
    "error.report": ("ErrorReport", True, False),
    "snapshot.record": ("SnapshotRecord", True, False),
    "snapshot.latest": ("SnapshotLatest", False, False),
    "snapshot.get": ("SnapshotGet", False, False),
    "snapshot.list": ("SnapshotList", False, False),
    "snapshot.prune": ("SnapshotPrune", True, True),
    "snapshot.verify": ("SnapshotVerify", True, True),
    "recovery.detect": ("RecoveryDetect", False, False),
    "recovery.restore": ("RecoveryRestore", True, False),
    "recovery.context": ("RecoveryContextGet", False, False),
    "recovery.list": ("RecoveryList", False, False),
    "handoff.begin": ("HandoffBegin", True, False),
    "handoff.get": ("HandoffGet", False, False),
    "handoff.cancel": ("HandoffCancel", True, False),
    "handoff.ask": ("HandoffAsk", True, False),
    "stats.recovery": ("StatsRecovery", False, False),
    "timeline.get": ("TimelineGet", False, False),
    "fleet.at": ("FleetAt", False, False),
    "report.get": ("ReportGet", False, False),
    "usage.report": ("UsageGet", False, True),
    "usage.budget": ("UsageBudget", True, False),
    "usage.budgets": ("BudgetList", False, False),
    "hook.deliver": ("HookDeliver", True, False),
    "hook.status": ("HookStatusGet", False, False),
}
_RECORD_NAMES = """
Agent AgentMoment AgentPage AgentState Artifact AttentionPage AwayStatus BackupResult Briefing
BudgetPage Change ChangedHolder ChangedMessage ChangedSortie Check Checkpoint CheckpointContent
CheckpointDifference CheckpointPage CheckpointSummary CommandOutcome CommitVerdict CompactionEffect
Compared ConflictEdit ConflictPage ConnectionFigures ContextDigest Counts CurrentAgent
CurrentMission CursorGap CursorPosition DeclaredCompliance DeclaredContext DeclaredDigest
DeclaredHints DeclaredOutcome DeclaredStep Deleted Delivery Detection Doing EditConflict
ErrorCheckpoint Event EventPage FieldChange Finding Findings FleetMoment Forgotten ForgottenMachine
ForgottenMission ForgottenRun Handoff HandoffBegun HarnessStatus Health HeardEvent Hello HookReply
HookStatus Integrity Kept Lock LockDifference LockPage MachineLine Message MessageDifference
MessagePage MethodTiming Metrics Migration MigrationReply MigrationRequest Mission MissionAtMoment
MissionBudget MissionLine MissionMoment MissionPage MissionState ModelUsage Mutation NewSortie Note
NotePage OpenRpc OptimisticFigures OthersFile OutsideEdit Paths PendingMessage Place PlaceNow
PlanStep ProgressNotification Pruned PrunedCheckpoint PrunedSnapshot PrunedSnapshots
PulledCheckpoints Query Record Recovery RecoveryCandidate RecoveryContext RecoveryGroup RecoveryPage
RecoveryStats Registration Report ReportAgent ReportCommand ReportCommit ReportError ReportFile
ReportOmitted ReportOpen ReportPrompt ReportSortie Request RestoreResult Restored ResumeHints
RunningWork SearchHit SearchMark SearchPage SelectedMission Session SessionPage Setting Settings
Snapshot SnapshotContent SnapshotDocument SnapshotPage SnapshotSummary Sortie SortieDifference
SortiePage SortieState SourceDetail SpoolStatus Status StepState StoreStatus Subscription TableCheck
Timeline TimelineBar TimelineMark TimelineRow Timing TodoCompliance TranscriptReading UnknownName
UnknownUsage Unsubscribed UsageGroup UsageReport Validity WorkNote WriterFigures
"""
RECORDS = frozenset(_RECORD_NAMES.split())
