"""Findings of a check, wherever they come from."""

from argparse import Namespace

from ...client.models import Finding, Findings
from .. import console

STYLES = {"ok": "green", "note": "cyan", "fixed": "yellow", "WRONG": "red"}


def _verdict(finding: Finding) -> str:
    if finding.fixed:
        return "fixed"
    if not finding.ok:
        return "WRONG"
    return "note" if finding.note else "ok"


def show(args: Namespace, found: Findings) -> int:
    """Print findings as JSON or line by line; the status is 1 when something is wrong and stays so.

    A line is a verdict, the check, its subject, what was seen, and its reason code if it has one.
    """
    if args.json:
        console.print_json(found)
        return 0 if found.ok else 1
    for finding in found.findings:
        verdict = _verdict(finding)
        code = f"[{finding.reason_code}]" if finding.reason_code else None
        told = "  ".join(filter(None, (finding.check, finding.subject, finding.detail, code)))
        console.flow(f"{verdict:<6} ", told, style=STYLES[verdict])
    console.line("Everything is in order." if found.ok else "Something is wrong.")
    return 0 if found.ok else 1
