"""Stand-ins for systemctl, loginctl, journalctl and launchctl that write down what they are told.

The first starts what a unit says and makes the links that it would make. Facts are files in a
directory of theirs: ``away`` means that no manager of this user runs.
"""

import os
import sys
from pathlib import Path

_HEAD = """#!/bin/sh
cd "{place}"
echo "{name} $*" >> calls
"""
SYSTEMCTL = """
[ -e away ] && { echo "Failed to connect to bus: No medium found" >&2; exit 1; }
units="{config}/systemd/user" unit=fleetd.service pid=pid
case "$*" in
*fleet-notify.service*) unit=fleet-notify.service pid=notify.pid ;;
*fleet-web.service*) unit=fleet-web.service pid=web.pid ;;
esac
begin() {
    told && return
    command=$(sed -n 's/^ExecStart=//p' "$units/$unit")
    sh -c "exec $command" </dev/null >>journal 2>&1 &
    echo $! > $pid
}
end() { told && { kill "$(cat $pid)"; while told; do sleep 0.02; done; rm $pid; }; }
told() { [ -s $pid ] && kill -0 "$(cat $pid)" 2>/dev/null; }
case "$*" in
"--user show $unit"*)
    if told; then echo ActiveState=active; echo SubState=running
    else echo ActiveState=inactive; echo SubState=dead; fi
    echo Result=success; echo NRestarts=0 ;;
"--user show fleetd.socket"*) if told; then echo ActiveState=active; fi ;;
"--user enable fleetd.socket")
    mkdir -p "$units/sockets.target.wants"
    ln -sf "$units/fleetd.socket" "$units/sockets.target.wants/fleetd.socket" ;;
"--user start "*)
    [ -e broken ] && { echo "Job for $3 failed." >&2; exit 1; }
    begin ;;
"--user restart "*) end; begin ;;
"--user stop "*|"--user disable --now "*) end ;;
esac
exit 0
"""
LOGINCTL = """
case "$1" in
show-user) [ -e linger ] && echo Linger=yes || echo Linger=no ;;
enable-linger) [ -e forbidden ] && { echo "Access denied" >&2; exit 1; }; touch linger ;;
esac
exit 0
"""
JOURNALCTL = """
[ -e journal ] && cat journal
exit 0
"""
LAUNCHCTL = """
agent="{home}/Library/LaunchAgents/local.fleetd.plist"
case "$*" in
"print gui/"*/local.fleetd) [ -e loaded ] || exit 113; echo "	state = running" ;;
"print gui/"*) [ -e away ] && exit 113 ;;
bootstrap*)
    [ -e "$agent" ] && touch loaded
    "{python}" -P -m fleetd </dev/null >>journal 2>&1 &
    echo $! > pid ;;
bootout*)
    rm -f loaded
    kill "$(cat pid)" && while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.02; done ;;
esac
exit 0
"""


class Managers:
    """Programs of a service manager, in front of the real ones."""

    def __init__(self, home: Path) -> None:
        self.place = home / "manager"
        self.bin = home / "bin"
        self.place.mkdir()
        self.bin.mkdir()
        self._fill = {"place": str(self.place), "config": str(home / "config")}
        self._fill |= {"home": str(home / "home"), "python": sys.executable}

    def have(self, name: str, body: str) -> None:
        """Put a program in front."""
        text = _HEAD.replace("{name}", name) + body
        for key, value in self._fill.items():
            text = text.replace(f"{{{key}}}", value)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def note(self, name: str) -> None:
        """Make the fact with this name true."""
        (self.place / name).touch()

    def calls(self, program: str) -> list[str]:
        """Return what a program was told, reading left out, and forget it."""
        file = self.place / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        words = [line.removeprefix(f"{program} ") for line in lines if line.startswith(program)]
        return [each for each in words if "show" not in each and not each.startswith("print ")]

    @property
    def path(self) -> str:
        """Return a PATH on which they come first."""
        return f"{self.bin}:{os.environ['PATH']}"
