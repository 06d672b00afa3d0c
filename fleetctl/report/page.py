"""A report as one HTML file, without scripts, links, or anything loaded from elsewhere."""

from base64 import b64encode
from hashlib import sha256
from html import escape

from .document import Block, Document, Line, UntrustedText

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #60646c; --paper: #fff; --line: #d9d9e0;
  --said: #f2f3f5; --done: #2b7a4b; --open: #2f6fbd; --failed: #b3261e; --other: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #9ba1a6; --paper: #151718;
  --line: #313538; --said: #22272b; --done: #5bb98c; --open: #70b8ff; --failed: #ff9592;
  --other: #f1a10d; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { border-top: 1px solid var(--line); padding-top: 1rem;
  font-size: 1.15rem; }
ul { padding-left: 1.2rem; } li, h1 { overflow-wrap: anywhere; }
code { background: var(--said); border-radius: 3px; padding: 0 .25em; font-size: .9em;
  white-space: pre-wrap; }
pre { background: var(--said); border-radius: 4px; margin: .5rem 0 1rem; overflow-x: auto;
  padding: .75rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .9em; }
p { color: var(--dim); }
svg { display: block; width: 100%; height: auto; margin: 1rem 0; font: 12px system-ui, sans-serif; }
.label { fill: var(--ink); } .tick { fill: var(--dim); font-size: 11px; }
.grid { stroke: var(--line); } .span { fill: var(--dim); }
.done { fill: var(--done); } .open { fill: var(--open); } .failed { fill: var(--failed); }
.bar { opacity: .8; } .mark { stroke: var(--paper); stroke-width: 1; }
.compaction { fill: var(--other); } .checkpoint { fill: var(--dim); }
.recovery { fill: var(--done); } .error { fill: var(--failed); }
@media print { body { margin: 0; max-width: none; } }
"""


def policy() -> str:
    """Return the page's Content-Security-Policy, which allows only its own style."""
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def render(document: Document, timeline: str) -> str:
    """Return the report as a page; ``timeline`` is the markup from ``timeline.draw``."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy())}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(_plain(document.title))}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        f"<h1>{_inline(document.title)}</h1>",
        *_items(document.facts),
        timeline,
    ]
    for section in document.sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        if section.content:
            parts += _content(section.content)
        else:
            parts.append(f"<p>{escape(section.empty)}</p>")
    return "\n".join([*filter(None, parts), "</body>", "</html>"]) + "\n"


def _content(content: list[Line | Block]) -> list[str]:
    parts: list[str] = []
    items: list[Line] = []
    for each in content:
        if isinstance(each, Line):
            items.append(each)
            continue
        parts += [*_items(items), f"<pre>{escape(each.shown)}</pre>"]
        items = []
    return [*parts, *_items(items)]


def _items(lines: list[Line]) -> list[str]:
    if not lines:
        return []
    return ["<ul>", *(f"<li>{_inline(line.parts)}</li>" for line in lines), "</ul>"]


def _inline(parts: tuple[str | UntrustedText, ...]) -> str:
    return "".join(
        f"<code>{escape(part.shown)}</code>" if isinstance(part, UntrustedText) else escape(part)
        for part in parts
    )


def _plain(parts: tuple[str | UntrustedText, ...]) -> str:
    return "".join(part.shown if isinstance(part, UntrustedText) else part for part in parts)
