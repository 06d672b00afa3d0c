"""The files of the page: what no module may do, and how large all of them are."""

import re
from pathlib import Path

import pytest

import fleetctl
from fleetctl.web.static_files import read_all

STATIC = Path(fleetctl.__file__).with_name("web") / "static"
MODULES = sorted(STATIC.glob("*.js"))
MOST_BYTES = 250_000
# Each makes more than text of a text, or runs one.
FORBIDDEN = re.compile(
    r"\.(?:innerHTML|outerHTML|insertAdjacentHTML|srcdoc|setHTML\w*)\b|createContextualFragment"
    r"|document\.write|DOMParser|\beval\(|new Function|setTimeout\(\s*[\"'`]|javascript:"
)
LOADS = re.compile(r"https?://|//[a-z0-9-]+\.[a-z]{2,}/")


def test_the_whole_page_is_small() -> None:
    files = {path: file for path, file in read_all().items() if path != "/"}
    assert {f"/static/{path.name}" for path in STATIC.iterdir()} == set(files)
    assert sum(len(file.data) for file in files.values()) < MOST_BYTES


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_makes_nodes_of_text_only(module: Path) -> None:
    text = module.read_text("utf-8")
    assert not FORBIDDEN.search(text)
    for address in LOADS.findall(text):
        # The name of SVG is no address that is asked for.
        assert "http://www.w3.org/2000/svg" in text, address
    for name in re.findall(r'from "([^"]+)"', text):
        assert (STATIC / name).is_file(), name


def test_the_document_has_no_inline_code() -> None:
    text = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text)
    for address in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert address.startswith(("/static/", "#")), address


def test_the_style_loads_nothing() -> None:
    text = (STATIC / "style.css").read_text("utf-8")
    assert "url(" not in text
    assert "@import" not in text
