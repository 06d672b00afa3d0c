"""The timeline: what is on it, how it is moved, and what its marks open."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

from fleetctl.client import Fleet
from fleetd.protocol.timestamps import to_ms
from tests.web.conftest import Open
from tests.web.filled import fill
from tests.web.views import close_dialog, show


def span(page: Page) -> tuple[int, int]:
    """Return the span that the route has, once it has one."""
    page.wait_for_url(re.compile("from="))
    given = parse_qs(urlsplit(page.url).fragment.partition("?")[2])
    return to_ms(given["from"][0]), to_ms(given["to"][0])


def middle(chart: Locator) -> tuple[float, float]:
    """Return the middle of a drawing, right of the names."""
    box = chart.bounding_box()
    assert box is not None
    return box["x"] + box["width"] * 0.6, box["y"] + 60


def test_rows_bars_and_marks_are_drawn(open_page: Open, fleet: Fleet, project: Path) -> None:
    filled = fill(fleet, project, "Write the form")
    page = open_page("#/timeline?span=60000")
    # The page comes right after the events: the marks are just left of now.
    expect(page.locator(".row-name")).to_have_count(len(filled.agents))
    expect(page.locator(".group text")).to_have_text(re.compile("Write the form"))
    expect(page.locator(".bar.blocked")).to_have_count(1)
    for kind in ("needs", "mail", "checkpoint", "error"):
        assert page.locator(f".rows .k-{kind}").count() >= 1, kind
    # Shapes differ, not only colours.
    shapes = page.locator(".legend path").evaluate_all("all => all.map(p => p.getAttribute('d'))")
    assert len(set(shapes)) == len(shapes) == 8


def test_the_legend_filters(open_page: Open, fleet: Fleet, project: Path) -> None:
    fill(fleet, project, "Write the form")
    page = open_page("#/timeline?span=60000")
    mail = page.get_by_role("button", name="mail")
    assert page.locator(".rows .k-mail").count() > 0
    mail.click()
    expect(mail).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".rows .k-mail")).to_have_count(0)
    mail.click()
    assert page.locator(".rows .k-mail").count() > 0


def test_it_is_moved_by_buttons_wheel_drag_and_keys(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    fill(fleet, project, "Write the form")
    page = open_page("#/timeline")
    page.get_by_role("button", name="Earlier").click()
    begin, end = span(page)
    assert abs(end - begin - 3_600_000) < 2_000
    chart = page.get_by_role("application")
    x, y = middle(chart)
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -250)
    page.keyboard.up("Control")
    expect(page.locator(".range")).not_to_contain_text("· 1 h")
    expect(page).not_to_have_url(re.compile(f"from={begin}"))
    page.wait_for_url(lambda url: span_of(url) < 3_000_000)
    before = page.url
    page.mouse.down()
    page.mouse.move(x + 150, y, steps=5)
    page.mouse.up()
    expect(page).not_to_have_url(before)
    for _ in range(12):
        page.get_by_role("button", name="Zoom in").click()
    expect(page.locator(".range")).to_contain_text("· 1 min")
    for _ in range(16):
        page.get_by_role("button", name="Zoom out").click()
    expect(page.locator(".range")).to_contain_text("· 7 d")
    page.get_by_role("button", name="15 min").click()
    expect(page.locator(".range")).to_contain_text("· 15 min")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator(".range")).to_contain_text("now")


def span_of(url: str) -> int:
    """Return the span of a route in ms."""
    given = parse_qs(urlsplit(url).fragment.partition("?")[2])
    return to_ms(given["to"][0]) - to_ms(given["from"][0])


def test_two_fingers_zoom(open_page: Open, fleet: Fleet, project: Path) -> None:
    fill(fleet, project, "Write the form")
    page = open_page("#/timeline", has_touch=True, viewport={"width": 600, "height": 800})
    page.get_by_role("button", name="Earlier").click()
    begin, end = span(page)
    x, y = middle(page.get_by_role("application"))
    touch = page.context.new_cdp_session(page)

    def send(kind: str, *places: float) -> None:
        points = [{"x": at, "y": y, "id": number} for number, at in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    send("touchStart", x - 30, x + 30)
    for step in range(1, 8):
        send("touchMove", x - 30 - 10 * step, x + 30 + 10 * step)
    send("touchEnd")
    page.wait_for_url(lambda url: span_of(url) < (end - begin) / 2)


def test_a_click_opens_the_event(open_page: Open, fleet: Fleet, project: Path) -> None:
    fleet.call_raw("agent.register", {"agent_id": "ada", "role": "specialist"})
    error = {"agent_id": "ada", "kind": "exception", "name": "pytest", "message": "2 failed"}
    fleet.call_raw("error.report", error)
    page = open_page("#/timeline?span=600000")
    mark = page.locator(".rows .k-error").bounding_box()
    assert mark is not None
    page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    expect(page.locator(".tip")).to_contain_text("error")
    page.mouse.down()
    page.mouse.up()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("ada met an error: pytest: 2 failed")
    expect(dialog).to_contain_text("error_reported")
    close_dialog(page)
    # The same by the keyboard.
    chart = page.get_by_role("application")
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("2 failed")


def test_a_cluster_is_zoomed_into_or_listed(open_page: Open, fleet: Fleet, project: Path) -> None:
    fleet.call_raw("agent.register", {"agent_id": "ada", "role": "specialist"})
    for number in range(4):
        error = {
            "agent_id": "ada",
            "kind": "exception",
            "name": "pytest",
            "message": f"{number} failed",
        }
        fleet.call_raw("error.report", error)
    page = open_page("#/timeline?span=86400000")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#announce")).to_contain_text("error: 4")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    for number in range(4):
        expect(dialog).to_contain_text(f"{number} failed")


def test_it_follows_what_happens(open_page: Open, fleet: Fleet) -> None:
    fleet.call_raw("agent.register", {"agent_id": "ada", "role": "specialist"})
    page = open_page("#/timeline?span=600000")
    expect(page.locator("#link")).to_have_text("live")
    error = {"agent_id": "ada", "kind": "exception", "name": "pytest", "message": "2 failed"}
    fleet.call_raw("error.report", error)
    expect(page.locator(".rows .k-error")).to_have_count(1, timeout=1_500)


def test_one_agent_or_mission_is_shown_alone(open_page: Open, fleet: Fleet, project: Path) -> None:
    first = fill(fleet, project, "Write the form")
    fill(fleet, project, "Another thing", "bruno")
    page = open_page(f"#/mission/{first.mission}")
    page.get_by_role("link", name="Timeline").last.click()
    expect(page.locator(".only")).to_contain_text("Only")
    expect(page.locator(".row-name").first).to_be_visible()
    assert "bruno" not in page.locator(".row-name").all_inner_texts()
    page.get_by_role("link", name="Show all").click()
    expect(page.locator(".row-name").filter(has_text="bruno").first).to_be_visible()
    show(page, "#/timeline?agent=bruno")
    expect(page.locator(".row-name")).to_have_text(["bruno"])


def test_all_rows_come_once_somebody_looks_below(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    made = {"title": "Many", "project_dir": str(project)}
    mission = fleet.call_raw("mission.create", made)["id"]
    names = [f"agent-{number:02}" for number in range(60)]
    for name in names:
        asked = {"agent_id": name, "role": "specialist", "mission_id": mission}
        fleet.call_raw("agent.register", asked)
        fleet.call_raw(
            "error.report",
            {"agent_id": name, "kind": "exception", "name": "make", "message": "no rule"},
        )
    page = open_page("#/timeline")
    expect(page.get_by_text("20 more agents below these.")).to_be_visible()
    expect(page.get_by_role("application")).to_have_attribute(
        "aria-label", re.compile("^Timeline of 60 agents,")
    )
    page.locator(".tl-scroll").evaluate("each => { each.scrollTop = each.scrollHeight }")
    expect(page.get_by_text("more agents below")).to_have_count(0)
    page.locator(".tl-scroll").evaluate("each => { each.scrollTop = each.scrollHeight }")
    expect(page.locator(".row-name").last).to_have_text(names[-1])


def test_the_table_has_all_rows(open_page: Open, fleet: Fleet, project: Path) -> None:
    for number in range(50):
        asked = {"agent_id": f"agent-{number:02}", "role": "specialist"}
        fleet.call_raw("agent.register", asked)
        error = {
            "agent_id": f"agent-{number:02}",
            "kind": "exception",
            "name": "make",
            "message": "no rule",
        }
        fleet.call_raw("error.report", error)
    page = open_page("#/timeline")
    page.get_by_text("The same as a table").click()
    expect(page.locator(".alternative tbody tr")).to_have_count(50)
