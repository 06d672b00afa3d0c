"""The texts of manual pages that --help does not contain."""

FLEETCTL = (
    "``fleetctl`` is the command line of ``fleetd``, the daemon that remembers missions, sorties, "
    "file locks, messages and checkpoints for fleets of AI coding agents. It briefs an agent that "
    "lost its context. ``fleet`` is a shorter name of the same program.",
    "Every command except ``watch`` takes ``--json`` and then prints exactly one JSON document, "
    "or one per line with ``--follow``. A terminal shows relative times and shortens long values. "
    "Pipes, and terminals with ``--exact``, get everything in full. An id may be shortened to a "
    "unique beginning of four or more hex digits. Agent names must be complete. The default "
    "mission is the one of the current directory, else the only one in progress.",
)
FLEETD = (
    "``fleetd`` serves JSON-RPC 2.0 on a Unix socket, one message per line, only to the user that "
    "it runs as. It stores everything in one SQLite database and one directory of checkpoint "
    "files. It runs in the foreground and logs to its standard error. ``fleetctl daemon`` installs "
    "it as a service, or runs it in the background.",
    "Every acknowledged change is on the disk. A socket, a database and a directory of checkpoints "
    "have only one daemon.",
)
EXIT_STATUS = (
    ("0", "Done."),
    ("1", "The command failed, or there was nothing to act on."),
    ("2", "The command line is wrong."),
    ("3", "The user answered a question with no."),
    ("4", "There is no such mission, sortie, checkpoint, ..."),
)
FLEETD_EXIT_STATUS = (
    ("0", "Normal end."),
    (
        "1",
        "Another daemon is running, or the error may pass, such as a full disk. A service manager "
        "restarts the daemon.",
    ),
    (
        "78",
        "Refused to start because of a setting, a path, a permission, or a database that is "
        "damaged or has a newer version. The message tells what to do.",
    ),
)
SIGNALS = (
    (
        "SIGTERM, SIGINT",
        "Stop: answer the requests under way and close the database, within ten seconds. A second "
        "signal stops immediately. No acknowledged change is lost either way.",
    ),
)
ENVIRONMENT = (
    ("FLEET_SOCKET", "The socket."),
    ("FLEET_DB_PATH", "The database."),
    ("FLEET_DATABASE_URL", "The PostgreSQL server of a store that several machines share."),
    ("FLIGHTLINE_DIR", "The directory above the checkpoint files."),
    ("FLEET_CONFIG", "The file of settings."),
    ("FLEET_LOG_LEVEL", "DEBUG, INFO, WARNING or ERROR."),
    (
        "FLEET_ACTIVITY_THRESHOLD_MS",
        "A mission without activity for this many milliseconds is silent.",
    ),
    ("FLEET_AGENT_ID", "The agent in whose shell a command runs."),
    (
        "XDG_RUNTIME_DIR, XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME",
        "The parents of the directories below.",
    ),
    ("NO_COLOR", "If set, the output has no colours."),
)
SYSTEMD = (
    (
        "LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_USEC",
        "Set by systemd: the number of passed sockets, the socket for notifications, and the "
        "interval of the watchdog.",
    ),
)
FILES = (
    ("$XDG_RUNTIME_DIR/fleet/fleetd.sock", "The socket."),
    ("~/.local/share/fleet/squawk.db", "The database."),
    (
        "~/.flightline/checkpoints/",
        "A file per checkpoint and snapshot, by mission and run; latest.json is the newest.",
    ),
    ("~/.config/fleet/config.toml", "Settings; see ``fleet-config``(5)."),
    ("~/.local/state/fleet/fleetd.log", "The log of a daemon in the background."),
    ("~/.local/state/fleet/spool/", "Events of hooks while no daemon ran."),
    ("~/.config/systemd/user/fleetd.service, fleetd.socket", "The service, if it is installed."),
    ("~/.config/fleet/notify.toml", "The options of fleetctl notify install; private."),
)
EXAMPLES = """\
fleetctl daemon install
fleetctl hooks install --all
fleetctl mission create "Add login" --sortie "Write the form" --sortie "Write tests"
fleetctl mission start
fleetctl checkpoint --note "Before the refactoring"
fleetctl resume --dry-run
"""
RELATED = {
    "checkpoint": ("fleetctl-resume(1)", "fleetctl-snapshot(1)"),
    "resume": ("fleetctl-checkpoint(1)", "fleetctl-context(1)"),
    "context": ("fleetctl-resume(1)",),
    "mission": ("fleetctl-sortie(1)", "fleetctl-agent(1)"),
    "sortie": ("fleetctl-mission(1)", "fleetctl-agent(1)"),
    "daemon": ("fleetd(1)",),
    "config": ("fleet-config(5)",),
    "backup": ("fleetctl-restore(1)",),
    "restore": ("fleetctl-backup(1)",),
    "migrate": ("fleetctl-backup(1)", "fleet-config(5)"),
    "hook": ("fleetctl-hooks(1)",),
    "hooks": ("fleetctl-doctor(1)",),
    "doctor": ("fleetctl-checkpoint(1)", "fleetctl-snapshot(1)"),
}
CONFIG = (
    "``fleetd`` reads its settings from a TOML file when it starts. All settings have defaults, "
    "and the file is optional. Environment variables override the file. An invalid value stops the "
    "start with a message that names it. ``fleetctl config`` shows every value in force and its "
    "origin. The file must belong to you or to root, and others must not be able to write to it.",
)
CONFIG_FILES = (("~/.config/fleet/config.toml", "The settings, or the file FLEET_CONFIG names."),)
CONFIG_EXAMPLE = """\
project_ignore = ["~/private"]

[retention]
days = 30

[detection]
threshold_ms = 600000

[projects]
widget = ["~/src/widget", "/srv/widget"]
"""
SETTINGS = {
    "log_level": "The least severe level that is logged.",
    "store": "The PostgreSQL URL of a store that several machines share; empty for a local one.",
    "project_ignore": "Directories that fleetd records nothing about, absolute or with ~/.",
    "projects": "Names of projects for all machines of a shared store: a section with a line per "
    "project, which lists its directories on this machine. A project without a name is known by "
    "the remote of its Git repository.",
    "machine_name": "The name of this machine in a shared store, instead of the host name.",
    "keep_prompts": "Whether prompts are stored with their text, or only the fact of a prompt.",
    "paths.database": "The database.",
    "paths.checkpoints": "The directory of checkpoint files.",
    "paths.socket": "The socket.",
    "limits.line_bytes": "The longest request, in bytes.",
    "limits.depth": "The deepest nesting of values in a request.",
    "limits.batch": "The most requests in a batch.",
    "limits.connections": "The most clients that are served at the same time; others wait.",
    "limits.requests_in_flight": "The most requests of one client that run at the same time.",
    "limits.line_timeout_ms": "How long a client may take to finish a line, in ms.",
    "limits.reply_timeout_ms": "How long a client may take to read its reply, in ms.",
    "limits.checkpoints_per_mission": "The most checkpoints of a mission.",
    "limits.checkpoint_bytes": "The largest checkpoint; the least important parts are cut first.",
    "retention.days": "Checkpoints of unfinished missions are deleted after this many days.",
    "retention.keep": "This many newest checkpoints of each mission are always kept.",
    "retention.completed_days": "The final checkpoint of a mission is kept for this many days.",
    "retention.event_days": "Events and ended locks are deleted after this many days.",
    "retention.usage_days": "Token counts of requests to models are deleted after this many days.",
    "retention.snapshots_per_run": "This many snapshots of a run are kept.",
    "retention.snapshot_days": "Snapshots are deleted after this many days.",
    "retention.snapshot_gzip_hours": "Snapshot files are compressed after this many hours; "
    "0 means never.",
    "detection.threshold_ms": "A mission without activity for this many ms is silent.",
    "locks.automatic": "Whether every edit locks its file until the turn of its agent ends, as with"
    " hooks install --auto-locks.",
    "locks.automatic_ms": "How long such a lock is held without a further edit, in ms.",
    "locks.lease_ms": "How long a lock is held without renewal, in ms.",
    "prompt.max_chars": "The most characters of a briefing.",
    "hooks.auto_missions": "Whether a session without a mission gets one.",
    "hooks.line_bytes": "The longest request of a hook, in bytes: an edit contains the whole file.",
}
