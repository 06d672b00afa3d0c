"""What other pages in the same browser can do with the server: nothing."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import another
from tests.web.conftest import Open
from tests.web.site import Site


class _Blank(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title><p>another site</p>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[str]:
    """Serve a page of somebody else on another port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Blank)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def elsewhere(browser: Browser, stranger: str) -> Iterator[Page]:
    """Return a page of another site."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(stranger)
    yield page
    context.close()


FETCH = """([url, options]) => fetch(url, options).then(
    async answer => ({type: answer.type, status: answer.status, text: await answer.text()}),
    error => ({refused: String(error)}))"""


def test_another_site_reads_nothing(elsewhere: Page, site: Site) -> None:
    for path in ("/", "/api/system.status", "/key", "/events", "/static/app.js"):
        url = f"{site.origin}{path}"
        assert "refused" in elsewhere.evaluate(FETCH, [url, {}])
        with_header = {"headers": {"X-Fleet-Key": "k", "X-Fleet-Token": "t"}}
        assert "refused" in elsewhere.evaluate(FETCH, [url, with_header])
        blind = elsewhere.evaluate(FETCH, [url, {"mode": "no-cors"}])
        assert blind.get("text", "") == ""


def test_another_site_can_neither_frame_nor_load_the_page(elsewhere: Page, site: Site) -> None:
    elsewhere.evaluate(
        """origin => {
            const frame = document.createElement("iframe");
            frame.src = origin + "/";
            document.body.append(frame);
            const script = document.createElement("script");
            script.type = "module";
            script.src = origin + "/static/app.js";
            script.onerror = () => { window.scriptRefused = true; };
            document.body.append(script);
        }""",
        site.origin,
    )
    elsewhere.wait_for_function("window.scriptRefused")
    elsewhere.wait_for_function(
        # Whatever the frame shows, it is not the page, and nobody may look into it.
        "document.querySelector('iframe').contentDocument === null"
    )
    frame = elsewhere.frames[-1]
    assert frame.locator("#main").count() == 0


def test_a_name_that_leads_here_is_refused(browser: Browser, site: Site) -> None:
    with another(browser, "--host-resolver-rules=MAP rebound.example 127.0.0.1") as rebound:
        page = rebound.new_page()
        answer = page.goto(f"http://rebound.example:{site.port}/")
        assert answer is not None
        assert answer.status == 403
        assert page.locator("#main").count() == 0


def test_no_other_method_is_answered(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.origin}/")
    for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
        answer = page.evaluate(FETCH, ["/api/system.status", {"method": method}])
        assert answer["status"] == 405
    context.close()


def test_a_wrong_token_and_a_wrong_key_are_refused(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.origin}/#token=wrong")
    page.get_by_role("heading", name="This page needs a new link").wait_for()
    expect(page).to_have_url(re.compile("#/now$"))
    for path, headers in (
        ("/key", {"X-Fleet-Token": "wrong"}),
        ("/key", {}),
        ("/api/system.status", {}),
        ("/api/system.status", {"X-Fleet-Key": "wrong"}),
        ("/events", {"X-Fleet-Key": "wrong"}),
    ):
        assert page.evaluate(FETCH, [path, {"headers": headers}])["status"] == 401
    context.close()


def test_the_key_is_in_no_cookie_and_no_other_tab(open_page: Open, site: Site) -> None:
    page = open_page()
    assert page.context.cookies() == []
    assert page.evaluate("JSON.stringify(localStorage)") == "{}"
    key = page.evaluate("sessionStorage.getItem('fleet-key')")
    assert len(key) >= 40
    second = page.context.new_page()
    second.goto(f"{site.origin}/")
    second.get_by_role("heading", name="This page needs a new link").wait_for()
