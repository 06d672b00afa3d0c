"""Text of agents is text, wherever it is shown."""

from pathlib import Path

from playwright.sync_api import Page, expect

from fleetctl.client import Fleet
from tests.web.conftest import Open
from tests.web.filled import fill, views
from tests.web.views import show

# Each would set `hit`, leave the page, or load something if it were anything but text.
CORPUS = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "' onfocus=window.hit=1 autofocus='",
    "javascript:window.hit=1",
    "&lt;img src=x onerror=window.hit=1&gt;",
    "</textarea></title></style><iframe srcdoc='<script>parent.hit=1</script>'>",
    "[click](javascript:window.hit=1) <a href=javascript:window.hit=1>here</a>",
    "{{constructor.constructor('window.hit=1')()}} ${window.hit=1}",
    "<style>@import 'http://192.0.2.1/a.css'</style><link rel=stylesheet href=http://192.0.2.1/>",
    "<base href=http://192.0.2.1/><form action=/><meta http-equiv=refresh content=0>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "#/now?at=<b>x</b>&token=1 %3Cscript%3Ewindow.hit=1%3C/script%3E",
    "\u202e<b onmouseover=window.hit=1>\u2066 __proto__ constructor",
)
# What a text could only have made; the page itself has none of them.
MADE = (
    ":is(main, dialog) :is(script, iframe, img, object, embed, base, link, style, meta, b, math,"
    " form:not(.search-form))"
)


def test_texts_are_shown_and_run_nothing(open_page: Open, fleet: Fleet, project: Path) -> None:
    all_filled = [
        (text, fill(fleet, project, text, f"agent-{number}")) for number, text in enumerate(CORPUS)
    ]
    page = open_page()
    # All of them are on these.
    for view in ("#/now", "#/timeline", "#/mission"):
        show(page, view)
        if view == "#/timeline":
            # Its drawing has the rows in sight only.
            page.get_by_text("The same as a table").click()
            page.get_by_role("row").nth(1).wait_for()
        harmless(page, view)
        for text, _ in all_filled:
            assert flat(text) in content(page), (view, text)
    for text, filled in all_filled:
        for view in views(filled):
            if filled.mission not in view:
                continue
            show(page, view)
            harmless(page, view)
            assert "tokens" in view or flat(text) in content(page), (view, text)
    for agent in all_filled[0][1].agents:
        for part in ("plan", "work", "notes", "mail", "briefing", "events"):
            show(page, f"#/agent/{agent}?part={part}")
            harmless(page, part)


def test_texts_of_events_are_shown_and_run_nothing(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    text = " ".join(CORPUS[:6])
    fill(fleet, project, text)
    page = open_page()
    for event in fleet.call_raw("event.list", {"limit": 1000})["events"]:
        show_event(page, event["seq"])
        harmless(page, event["type"])
    show(page, "#/search?q=window")
    page.get_by_role("listitem").filter(has_text="onerror").first.wait_for()
    harmless(page, "search")


def harmless(page: Page, view: str) -> None:
    """Check that no text became more than text."""
    assert page.locator(MADE).count() == 0, view
    assert page.evaluate("window.hit") is None, view
    links = page.locator("a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert all(each.startswith("#/") or each == "#main" for each in links), view
    assert page.evaluate("document.activeElement.getAttribute('onfocus')") is None, view


def content(page: Page) -> str:
    """Return all text of the page without its white space."""
    return flat(page.evaluate("document.body.textContent"))


def show_event(page: Page, seq: int) -> None:
    """Open an event above the view and wait for what is around it."""
    page.evaluate("seq => { location.hash = `#/now?event=${seq}` }", seq)
    expect(page.locator("dialog .around")).to_be_visible()
    expect(page.locator("dialog dd").nth(2)).to_have_text(str(seq))


def flat(text: str) -> str:
    """Return a text without its white space."""
    return "".join(text.split())
