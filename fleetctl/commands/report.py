"""``fleetctl report``: what an agent or a mission was asked, did, decided and left open."""

import re
import sys
from typing import TYPE_CHECKING, Any

from fleetd.protocol.errors import NotFound

from ..args import Namespace, Subparsers, UsageError, command
from ..client import Fleet
from ..client.models import Report, ReportGet
from ..context import reported_mission
from ..output import console

if TYPE_CHECKING:
    from ..report.usage import UsageRow

EXAMPLES = """\
  fleetctl report
  fleetctl report msn-1a2b3c4d --html --out report.html
  fleetctl report claude-1a2b3c4d --out report.md"""
_MISSION = re.compile(r"msn-[0-9a-f]{4,}\Z")


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "report",
        run,
        "Report what an agent or a mission was asked, planned, did, decided and left open.",
        EXAMPLES,
        details="The report has your prompts: read it before you give it away, or leave them out"
        " with --without-prompts.",
    )
    parser.add_argument(
        "subject",
        metavar="AGENT|MISSION",
        nargs="?",
        completes="mission",
        help="the agent's name or the mission's id (default: the mission of this directory,"
        " else the one that ended here last)",
    )
    parser.flag("--md", help="print Markdown (the default)")
    parser.flag("--html", help="print one HTML file with a timeline")
    parser.add_argument("--out", metavar="FILE", help="write to FILE, which only you can read")
    parser.flag(
        "--without-prompts", help="leave out prompts, answers, and titles that were prompts"
    )


def run(args: Namespace) -> int:
    """Print or write the report in the requested format."""
    # Imported here: help and completions need no report.
    from ..report import document, markdown, page, timeline
    from ..report.usage import usage_of

    forms = [name for name in ("md", "html", "json") if getattr(args, name)]
    if len(forms) > 1:
        raise UsageError(f"Give one of --md, --html and --json, not --{' and --'.join(forms)}.")
    if args.out == "":
        raise UsageError("--out is empty; give the name of a file.")
    with Fleet() as client:
        report = _found(client, args.subject)
        usage = usage_of(client, report)
    prompts = not args.without_prompts
    if args.json:
        return _deliver(args, console.to_json(_as_json(report, usage, with_prompts=prompts)) + "\n")
    shown = document.document_of(report, usage, with_prompts=prompts)
    if args.html:
        return _deliver(args, page.render(shown, timeline.draw(report)))
    return _deliver(args, markdown.render(shown))


def _found(client: Fleet, subject: str | None) -> Report:
    """Return the report of an agent or a mission; an ambiguous name is the mission's."""
    if subject is None:
        return client.call(ReportGet(mission_id=reported_mission(client)))
    if not re.match(r"[A-Za-z0-9][\w.:@-]{0,63}\Z", subject):
        raise _unknown(subject)
    looks = [ReportGet(agent_id=subject)]
    if re.match(r"[a-z]{2,4}-[\w-]+\Z", subject):
        at = 0 if _MISSION.match(subject) else 1
        looks.insert(at, ReportGet(mission_id=subject))
    for request in looks:
        try:
            return client.call(request)
        except NotFound:
            continue
    raise _unknown(subject)


def _unknown(subject: str) -> NotFound:
    return NotFound(
        f"No agent and no mission has this name: {subject}",
        hint="fleetctl agent list and fleetctl mission list show the existing ones.",
    )


def _as_json(
    report: Report, usage: "list[UsageRow] | None", *, with_prompts: bool
) -> dict[str, Any]:
    """Return the daemon's report, with the tokens if they are known."""
    from ..report.document import title_of

    found: dict[str, Any] = dict(report)  # type: ignore[call-overload]
    if not with_prompts:
        found["asked"] = []
        found["agents"] = [
            {**each, "last_answer": None, "agent": _silent(each["agent"])}
            for each in found["agents"]
        ]
        found["agent"] = _silent(found["agent"])
        found["missions"] = [
            {**each, "title": title_of(each, with_prompts=False)} for each in found["missions"]
        ]
        if report.mission is not None:
            found["mission"] = {
                **found["mission"],
                "title": title_of(report.mission, with_prompts=False),
            }
    found["usage"] = None if usage is None else [each._asdict() for each in usage]
    return found


def _silent(agent: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an agent without its last answer to its user."""
    return agent and {**agent, "needs_text": None}


def _deliver(args: Namespace, text: str) -> int:
    """Print the text, or write it to the named file."""
    if args.out is None:
        sys.stdout.write(text)
        return 0
    from ..output.files import written_whole

    with written_whole(args.out) as file:
        file.write(text.encode("utf-8", "replace"))
    console.line(f"Wrote {console.path(args.out)}.")
    return 0
