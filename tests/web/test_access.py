"""The page for people with a screen reader, a keyboard, a small window or less motion."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fleetctl.client import Fleet
from tests.agents.packages import NotHere, Package, fetched
from tests.web.conftest import Open
from tests.web.filled import Filled, fill, views
from tests.web.views import close_dialog, show

AXE = Package("axe-core", "axe-core@4.10.3", "4.10.3", ("axe-core", "axe.min.js"))
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
TEXT = "Write the form for src/form.py"


# npm's settings are in the person's home: it is asked before a test enters another.
@pytest.fixture(scope="session")
def axe() -> str:
    """Return the checks of axe-core."""
    try:
        return fetched(AXE).program.read_text("utf-8")
    except NotHere as reason:
        pytest.skip(str(reason))


@pytest.fixture
def filled(fleet: Fleet, project: Path) -> Filled:
    """Fill the fleet."""
    return fill(fleet, project, TEXT)


def violations(page: Page, axe: str) -> list[str]:
    """Return what is against the rules, and where."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    run = "levels => axe.run(document, {runOnly: levels, resultTypes: ['violations']})"
    found: dict[str, Any] = page.evaluate(run, LEVELS)
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_violation(axe: str, filled: Filled, open_page: Open, scheme: str) -> None:
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    for view in [*views(filled), "#/search?q=form"]:
        show(page, view)
        assert violations(page, axe) == [], view
    show(page, "#/timeline")
    page.get_by_text("The same as a table").click()
    assert violations(page, axe) == []
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page, axe) == []
    close_dialog(page)
    show(page, "#/now?event=5")
    expect(page.locator("dialog .around")).to_be_visible()
    assert violations(page, axe) == []


def test_a_narrow_and_a_replayed_page_have_no_violation(
    axe: str, filled: Filled, open_page: Open, fleet: Fleet
) -> None:
    moment = fleet.call_raw("event.list", {"newest": True, "limit": 1})["events"][0]["timestamp"]
    page = open_page(viewport={"width": 360, "height": 740})
    for view in ("#/now", "#/timeline", f"#/mission/{filled.mission}", "#/search?q=form"):
        joint = "&" if "?" in view else "?"
        show(page, f"{view}{joint}at={moment}")
        assert violations(page, axe) == [], view


def test_no_view_is_wider_than_a_small_window(filled: Filled, open_page: Open) -> None:
    page = open_page(viewport={"width": 360, "height": 740})
    for view in views(filled):
        show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view


def test_everything_is_reached_with_the_keyboard(filled: Filled, open_page: Open) -> None:
    page = open_page()
    focused = page.locator(":focus")
    page.keyboard.press("Tab")
    expect(focused).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(focused).to_have_attribute("href", f"#/agent/{waiting(page)}")
    page.keyboard.press("2")
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    page.keyboard.press("3")
    expect(page.get_by_role("heading", name="Missions")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#search-q")).to_be_focused()
    # Keys that are typed are text there.
    page.keyboard.type("form 1?")
    expect(page.locator("#search-q")).to_have_value("form 1?")
    page.locator("#search-q").fill("form")
    page.keyboard.press("Enter")
    page.locator(".hit").first.wait_for()
    page.locator(".excerpt").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    close_dialog(page)


def waiting(page: Page) -> str:
    """Return the first agent that needs a person."""
    return page.locator(".need .agent").first.inner_text()


def test_the_timeline_is_worked_with_the_keyboard(filled: Filled, open_page: Open) -> None:
    page = open_page("#/timeline")
    chart = page.get_by_role("application")
    chart.focus()
    told = page.locator("#announce")
    page.keyboard.press("ArrowDown")
    expect(told).to_contain_text("marks and sorties")
    first = told.inner_text()
    page.keyboard.press("ArrowDown")
    expect(told).not_to_have_text(first)
    before = page.locator(".range").inner_text()
    page.keyboard.press("-")
    expect(page.locator(".range")).not_to_have_text(before)
    page.keyboard.press("Shift+ArrowLeft")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "true")


def test_single_keys_can_be_turned_off(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("?")
    page.get_by_role("checkbox").uncheck()
    close_dialog(page)
    page.keyboard.press("2")
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("#/now$"))


def test_the_colours_are_those_of_the_system_or_the_switch(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    assert light != dark
    switch = page.get_by_role("button", name="Colours")
    switch.click()
    switch.click()
    expect(switch).to_have_accessible_name("Colours: Dark")
    assert page.evaluate(ground) == dark
    page.reload()
    expect(switch).to_have_accessible_name("Colours: Dark")


def test_who_wants_no_motion_gets_none(filled: Filled, open_page: Open) -> None:
    page = open_page(reduced_motion="reduce")
    moving = """[...document.querySelectorAll("*")].filter(node => {
        const style = getComputedStyle(node);
        return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0;
    }).length"""
    assert page.evaluate(moving) == 0


def test_a_screen_reader_hears_who_needs_a_person(open_page: Open, filled: Filled) -> None:
    page = open_page()
    expect(page.locator("#announce")).to_contain_text("needs a person")
    expect(page.locator("main")).to_have_count(1)
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    expect(
        page.get_by_role("table", name="What agents do").get_by_role("columnheader")
    ).to_have_count(6)
