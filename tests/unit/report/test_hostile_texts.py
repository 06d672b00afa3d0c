"""Others' words in a report are never markup, in Markdown and in HTML."""

import re
from html.parser import HTMLParser

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fleetctl.report import document, markdown, page, timeline
from fleetd.protocol.display import clean
from tests.unit.report.reports import report

PIECES = (
    *("```", "````", "`", "~~~", "\n", "\r", "\r\n", "\u2028", "\t", "    ", "\x00", "\x1b[31m"),
    *("[x](http://evil.example)", "![x](http://evil.example/p.png)", "<http://evil.example>"),
    *("https://evil.example", "www.evil.example", "a@evil.example", "@maintainer", "#12"),
    *("<script>alert(1)</script>", "</pre>", "</code>", "</style>", "</title>", "</svg>", "<!--"),
    *("-->", "<img src=x onerror=alert(1)>", '" onload="', "' x='", "&lt;", "&#60;", "]]>", "\\"),
    *("# ", "- ", "> ", "1. ", "| a | b |", "---", "***", "__", "[x]: http://evil.example", "\\`"),
    *("\u202e", "\u200b", "\ud7ff", "javascript:", "<svg onload=x>", "{{", "$(", "a", "é", " "),
)
HOSTILE = (
    st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=8).map("".join).filter(clean)
)
OURS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "ul", "li", "code", "pre"),
    *("p", "svg", "g", "line", "text", "rect", "path"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "xmlns", "viewbox", "role", "class"),
    *("aria-label", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "rx", "d", "transform"),
    "text-anchor",
}
VOID = {"meta", "line", "rect", "path"}
# What Markdown may be made of: nothing with a link, an image, or HTML.
BLOCKS = {
    *("heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "fence"),
    *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
}


class Page(HTMLParser):
    """What a page is made of; each tag is closed in its order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.comments: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID or (tag != "meta" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def parsed(text: str) -> Page:
    found = Page()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def pages(said: str, *, of_agent: bool = False) -> tuple[str, str]:
    found = report(said, of_agent=of_agent)
    shown = document.document_of(found, None)
    return markdown.render(shown), page.render(shown, timeline.draw(found))


def flat(tokens: list[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *(token.children or []))]


@given(HOSTILE, st.booleans())
@example("``` \n<script>", False)
@example("`" * 9 + "\n```\n# x", True)
@settings(max_examples=100, deadline=None)
def test_markdown_has_no_markup_of_others(said: str, of_agent: bool) -> None:
    text, _ = pages(said, of_agent=of_agent)
    expected = pages("plain", of_agent=of_agent)[0]
    for dialect in ("commonmark", "gfm-like"):
        tokens = flat(MarkdownIt(dialect).parse(text))
        kinds = {token.type for token in tokens}
        assert kinds <= BLOCKS | {"text", "code_inline"}
        # All that is said is in code: the rest is the same whoever said what.
        plain = flat(MarkdownIt(dialect).parse(expected))
        ours = [token.content.replace("(empty)", "") for token in tokens if token.type == "text"]
        assert "".join(ours) == "".join(each.content for each in plain if each.type == "text")
        fences = [token.content for token in tokens if token.type == "fence"]
        block = document.Block(said).shown
        assert fences == [f"{block}\n"] * len(fences)
        assert len(fences) == 2


@given(HOSTILE, st.booleans())
@settings(max_examples=100, deadline=None)
def test_html_has_no_tags_of_others(said: str, of_agent: bool) -> None:
    _, text = pages(said, of_agent=of_agent)
    plain = parsed(pages("plain", of_agent=of_agent)[1])
    found = parsed(text)
    assert found.tags == plain.tags <= OURS
    assert found.attributes == plain.attributes <= ATTRIBUTES
    assert found.comments == []
    shape = re.compile(r"<[a-z][^>]*>|</[a-z0-9]+>")
    places = re.compile(r' (?:x|y|x1|x2|y1|y2|width|transform|viewBox)="[^"]*"')
    counted = [places.sub("", tag) for tag in shape.findall(text)]
    expected = [places.sub("", tag) for tag in shape.findall(pages("plain", of_agent=of_agent)[1])]
    assert counted == expected


def test_nothing_is_loaded_and_only_the_own_style_is_allowed() -> None:
    _, text = pages("plain")
    assert not re.search(r"\b(?:src|href|url|on\w+|style)\s*=|@import|url\(", text)
    assert "default-src 'none'" in page.policy()
    assert "unsafe" not in page.policy()
    assert text.count("<style>") == 1
    assert "prefers-color-scheme: dark" in text


def test_a_check_would_see_text_that_is_not_escaped() -> None:
    assert "script" in parsed("<p><script>x</script></p>").tags
    tokens = flat(MarkdownIt("gfm-like").parse("- see https://evil.example"))
    assert not {token.type for token in tokens} <= BLOCKS | {"text", "code_inline"}
