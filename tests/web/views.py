"""The views of the page, and when they are drawn."""

from playwright.sync_api import Page


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
