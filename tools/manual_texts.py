"""What manual pages say beside what --help says."""

FLEETCTL = (
    "``fleetctl`` talks to ``fleetd``, the daemon that remembers missions, sorties, file locks, "
    "mail and checkpoints for fleets of AI coding agents, and brings an agent back that lost its "
    "context. ``fleet`` is the same program by a shorter name.",
    "Every command but ``watch`` takes ``--json`` and then prints exactly one JSON document, "
    "with ``--follow`` one per line. On a "
    "terminal times are told as people say them, and what is long is shortened; a pipe gets all of "
    "it, and so "
    "does a terminal with ``--exact``. Ids may be cut to a unique beginning of four or more hex "
    "digits; agent names are given in full. Where a mission is not named, it is the one of "
    "the current directory, else the only one in progress.",
)
FLEETD = (
    "``fleetd`` serves JSON-RPC 2.0 on a Unix socket, one message in a line, to the user that it "
    "runs as and to nobody else. It keeps everything in one SQLite database and one directory of "
    "checkpoint files. It runs in the foreground and logs to its standard error; "
    "``fleetctl daemon`` installs it as a service, or runs it in the background.",
    "Whatever it acknowledged is on the disk. Only one daemon serves a socket, writes in a "
    "database, or keeps a directory of checkpoints.",
)
EXIT_STATUS = (
    ("0", "Done."),
    ("1", "It failed, or there was nothing to act on."),
    ("2", "The command line is wrong."),
    ("3", "The question was answered with no."),
    ("4", "There is no such mission, sortie, checkpoint, ..."),
)
FLEETD_EXIT_STATUS = (
    ("0", "Stopped in order."),
    (
        "1",
        "Another daemon is running; or what went wrong may pass, such as a full disk. A service "
        "manager tries again.",
    ),
    (
        "78",
        "Refused to start: a setting, a path, a permission, a database that is damaged or of a "
        "newer version. The message says what to do.",
    ),
)
SIGNALS = (
    (
        "SIGTERM, SIGINT",
        "End in order: what is in flight is answered, the database is closed; ten seconds at "
        "most. The second one ends it at once. Nothing that was acknowledged is lost either way.",
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
        "After so many milliseconds without activity a mission counts as silent.",
    ),
    ("FLEET_AGENT_ID", "The agent in whose shell a command runs."),
    (
        "XDG_RUNTIME_DIR, XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME",
        "Where the directories below lie.",
    ),
    ("NO_COLOR", "When it is set, nothing is coloured."),
)
SYSTEMD = (
    (
        "LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_USEC",
        "Set by systemd: a socket that it holds, where readiness is told, and how often life is.",
    ),
)
FILES = (
    ("$XDG_RUNTIME_DIR/fleet/fleetd.sock", "The socket."),
    ("~/.local/share/fleet/squawk.db", "The database."),
    (
        "~/.flightline/checkpoints/",
        "A file for each checkpoint and snapshot, by mission and run; the newest is latest.json.",
    ),
    ("~/.config/fleet/config.toml", "Settings; see ``fleet-config``(5)."),
    ("~/.local/state/fleet/fleetd.log", "The log of a daemon in the background."),
    ("~/.local/state/fleet/spool/", "What hooks said while no daemon ran."),
    ("~/.config/systemd/user/fleetd.service, fleetd.socket", "The service, where it is installed."),
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
    "``fleetd`` reads its settings when it starts, from a file in TOML; all of them have defaults, "
    "and the file need not be there. Environment variables win over the file. A value that cannot "
    "stand stops the start, and the message names it. ``fleetctl config`` shows every value in "
    "force and where it came from. The file must belong to you or to root, and not everybody may "
    "write to it.",
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
    "log_level": "How much is logged.",
    "store": "A PostgreSQL URL, of a store that several machines share; empty for a database here.",
    "project_ignore": "Directories of which nothing is recorded, absolute or beginning with ~/.",
    "projects": "What projects are called on all machines of a shared store: a section with a "
    "line for each, the directories that it has on this machine. A project without a name here "
    "goes by the remotes of its Git repository.",
    "machine_name": "What this machine is called where several share a store, in place of the name"
    " of the computer.",
    "keep_prompts": "Whether what a user said to an agent is kept, or only that something was.",
    "paths.database": "The database.",
    "paths.checkpoints": "The directory of checkpoint files.",
    "paths.socket": "The socket.",
    "limits.line_bytes": "The longest request, in bytes.",
    "limits.depth": "How deep the values of a request may be nested.",
    "limits.batch": "How many requests a batch may hold.",
    "limits.connections": "How many clients are served at once; others wait.",
    "limits.requests_in_flight": "How many requests of one client are worked on at once.",
    "limits.line_timeout_ms": "How long a client may take to finish a line, in ms.",
    "limits.reply_timeout_ms": "How long a client may take to read its reply, in ms.",
    "limits.checkpoints_per_mission": "How many checkpoints a mission keeps at most.",
    "limits.checkpoint_bytes": "How large a checkpoint may be; what is needed least is cut first.",
    "retention.days": "After so many days checkpoints of unfinished missions go.",
    "retention.keep": "The newest so many of each mission stay all the same.",
    "retention.completed_days": "For so many days the final checkpoint of a mission stays.",
    "retention.event_days": "After so many days events and ended locks go.",
    "retention.usage_days": "After so many days what requests to models took goes.",
    "retention.snapshots_per_run": "How many snapshots of a run stay.",
    "retention.snapshot_days": "After so many days snapshots go.",
    "retention.snapshot_gzip_hours": "After so many hours their files are compressed; 0: never.",
    "detection.threshold_ms": "After so many ms without activity a mission counts as silent.",
    "locks.automatic": "Whether every edit locks its file until the turn of its agent ends, as with"
    " hooks install --auto-locks.",
    "locks.automatic_ms": "How long such a lock is held without a further edit, in ms.",
    "locks.lease_ms": "How long a lock is held that is not renewed, in ms.",
    "prompt.max_chars": "How many characters a recovery prompt may have.",
    "hooks.auto_missions": "Whether a session without a mission gets one.",
    "hooks.line_bytes": "The longest request of a hook, in bytes: an edit tells the whole file.",
}
