"""``fleetctl handoff``: give an agent's work to a new session of an agent CLI."""

import os
import shlex
import sys

from fleetd.protocol.errors import FleetError, InvalidState

from ..args import Namespace, Subparsers, UsageError, command, yes_option
from ..client import Fleet
from ..client.models import Handoff, HandoffBegin, HandoffBegun, HandoffCancel, HandoffGet
from ..integrations import status
from ..integrations.hook_command import this_installation
from ..integrations.registry import HARNESSES
from ..launch import child
from ..launch.commands import Launch, beginning, starters
from ..launch.run import attaching, check_directory, in_tmux
from ..output import console
from ..prompts import confirm_or_cancel, interactive

EXAMPLES = """\
  fleetctl handoff claude-1a2b3c4d --to codex
  fleetctl handoff claude-1a2b3c4d --to gemini --tmux
  fleetctl handoff claude-1a2b3c4d --to codex --print"""
# With these variables, another fleetctl finds the same daemon and the same programs.
_PASSED_ON = ("PATH", "FLEET_SOCKET", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
AWAITED = "30 s"
FAILED = 1


class NotCompleted(InvalidState):
    """The session of a hand-off did not begin in time, so nothing moved."""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "handoff",
        run,
        "Give an agent's work to a new session of an agent CLI: open sorties, locks and mail.",
        EXAMPLES,
        details="The new session starts in the same directory, and its first prompt is the"
        f" briefing. The work moves when that session begins. If it does not within {AWAITED},"
        " nothing changes.",
    )
    parser.add_argument("agent", completes="agent", help="the agent whose work you hand over")
    parser.add_argument(
        "--to", required=True, choices=starters(), help="the agent CLI that continues the work"
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--exec",
        action="store_true",
        help="start the agent CLI in this terminal, and wait for its end (default)",
    )
    ways.add_argument("--tmux", action="store_true", help="start it in a new window of tmux")
    ways.add_argument(
        "--print",
        action="store_true",
        help="print the command to run in another terminal; nothing moves yet",
    )
    parser.flag("--force", help="also hand over from an agent that is at work")
    yes_option(parser)


def run(args: Namespace) -> int:
    """Show the briefing, ask, and start the new session."""
    if args.json and not (args.print or args.tmux):
        raise UsageError("--json needs --print or --tmux: the terminal is the new session's.")
    with Fleet() as client:
        planned = client.call(
            HandoffBegin(agent_id=args.agent, to=args.to, force=args.force, dry_run=True)
        )
        launch = _launch(planned)
        # All obstacles are found before anything is asked or changed.
        launch.executable()
        check_directory(launch)
        if args.print:
            return _print(args, planned, launch)
        _announce(args, planned, launch)
        if args.tmux:
            return _open_window(args, launch)
        begun = client.call(
            HandoffBegin(
                agent_id=args.agent,
                to=args.to,
                # The text that was shown names it already.
                successor_id=planned.handoff.successor_id,
                force=args.force,
            )
        )
    return _run(begun.handoff, _launch(begun))


def _launch(begun: HandoffBegun) -> Launch:
    """Return the launch of a successor's session."""
    handoff = begun.handoff
    presets = {
        "FLEET_AGENT_ID": str(handoff.successor_id),
        "FLEET_MISSION_ID": handoff.mission_id,
    }
    return beginning(handoff.harness, begun.prompt, handoff.cwd or os.getcwd(), presets)  # noqa: PTH109


def _again(args: Namespace, *words: str) -> list[str]:
    """Return the words of this command for another terminal."""
    force = ["--force"] if args.force else []
    return ["handoff", args.agent, "--to", args.to, "--exec", *force, *words]


def _print(args: Namespace, planned: HandoffBegun, launch: Launch) -> int:
    line = shlex.join(["fleetctl", *_again(args, *(["--yes"] if args.yes else []))])
    if args.json:
        console.print_json({"command": line, "directory": launch.directory})
        return 0
    console.warn(*planned.warnings, *_without_hooks(args.to, launch.directory))
    console.whole(line)
    text = (
        f"This command shows the briefing, asks, and starts {launch.title} in {launch.directory}."
        " Nothing changes before that."
    )
    console.print_stderr(text)
    return 0


def _announce(args: Namespace, planned: HandoffBegun, launch: Launch) -> None:
    """Show what the new session will read and what moves; raises Cancelled when the answer is no.

    A script that reads JSON cannot answer a question, and asked for the hand-off already.
    """
    ask = not args.yes and (not args.json or interactive())
    if not args.json or ask:
        handoff = planned.handoff
        parts = [
            "--- First prompt ---",
            planned.prompt,
            "--- End of the first prompt ---",
            "",
            f"From:      {handoff.agent_id}",
            f"To:        {handoff.successor_id}, a new session of {launch.title}",
            f"Mission:   {handoff.mission_id}  {handoff.mission_title}",
            f"Directory: {launch.directory}",
            *(
                f"  {each.what} {each.id}: {each.before} -> {each.after}"
                for each in planned.changes
            ),
        ]
        stream = sys.stderr if args.json else sys.stdout
        print("\n".join(map(console.clean_block, parts)), end="\n\n", file=stream)
        console.warn(*planned.warnings, *_without_hooks(args.to, launch.directory))
    if ask:
        confirm_or_cancel("Hand this work over?", "Nothing was handed over.")


def _without_hooks(harness: str, directory: str | None) -> list[str]:
    """Return a warning if no hook would report the new session to fleetd."""
    from pathlib import Path

    cli, installation = HARNESSES[harness], this_installation()
    places = [None, Path(directory)] if directory else [None]
    if any(status.state(cli, place, installation).installed != "no" for place in places):
        return []
    absent = f"fleetd's hooks are not installed in {cli.title}, so the work would not move."
    return [f"{absent} Install them first: fleetctl hooks install {harness}"]


def _open_window(args: Namespace, launch: Launch) -> int:
    """Run the same command in a window of tmux, where the new session is its child."""
    words = (sys.executable, "-m", "fleetctl", *_again(args, "--yes"))
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    window = Launch("fleetctl", words, launch.directory, passed)
    (place,) = in_tmux([(f"{args.to}-{args.agent}", window)])
    if args.json:
        console.print_json({"window": place})
        return 0
    console.line(f"{launch.title} starts in the window {place} of tmux.")
    if how := attaching():
        console.line(f"To see it: {how}")
    return 0


def _run(handoff: Handoff, launch: Launch) -> int:
    """Run the new session to its end, and print the outcome of the hand-off."""
    try:
        ended = child.run(launch)
    except FleetError:
        _end(handoff)
        raise
    done = _end(handoff)
    if done is None or done.state == "completed":
        console.lines(_outcome(done))
        return ended
    reason = f" ({done.reason})" if done.reason else ""
    if done.state == "cancelled":
        reason = f" ({launch.title} ended before its session began)"
    elif done.state == "expired" and not reason:
        reason = f" (no hook of {launch.title} came within 30 s)"
    raise NotCompleted(
        f"The work of {handoff.agent_id} was not handed over{reason}.",
        hint="Everything is as before. fleetctl hooks doctor shows whether fleetd receives the"
        f" hooks of {launch.title}.",
        handoff_id=handoff.id,
        state=done.state,
        exit_status=ended,
    )


def _end(handoff: Handoff) -> Handoff | None:
    """Return a hand-off, which no longer waits for a session; None if its outcome is unknown."""
    try:
        with Fleet() as client:
            done = client.call(HandoffGet(handoff_id=handoff.id))
            if done.state == "pending":
                done = client.call(HandoffCancel(handoff_id=handoff.id))
            return done
    except FleetError as error:
        console.warn(f"It is unknown whether the work was handed over: {error.message}")
        return None


def _outcome(done: Handoff | None) -> list[str]:
    if done is None:
        return []
    return [
        f"{done.successor_id} has the work of {done.agent_id} since {done.ended_at}.",
        f"To undo this: fleetctl resume --checkpoint {done.undo_checkpoint_id} --rewind",
    ]
