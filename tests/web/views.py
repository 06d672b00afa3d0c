"""The views of the page, and when they are drawn."""

import re

from playwright.sync_api import Page, expect


def show(page: Page, view: str) -> None:
    """Go to a view and wait until it is drawn."""
    page.evaluate(
        """view => new Promise(done => {
            performance.clearMarks("view drawn");
            const look = () => performance.getEntriesByName("view drawn").length
                ? done() : requestAnimationFrame(look);
            if (location.hash === view) return done();
            location.hash = view;
            look();
        })""",
        view,
    )


def close_dialog(page: Page) -> None:
    """Close the dialog by the keyboard; the browser tells of that a moment after the key."""
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("event="))
