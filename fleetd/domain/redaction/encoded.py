"""Secrets in disguise: with invisible characters or colours between, or wrapped in Base64."""

import base64
import binascii
import re
from collections.abc import Iterator

from ...protocol.display import INVISIBLE
from .tokens import TOKEN_BEGINNING, TOKEN_SEARCHES, Found, Search

# As they are written in JSON and in the source of programs.
_WRITTEN = (
    r"\\\\?(?:u(?:00[aA][dD]|034[fF]|061[cC]|200[b-fB-F]|202[a-eA-E]|206[0-9a-fA-F]|[fF][eE][fF]{2})"
    r"|(?:u001[bB]|x1[bB]|033|e)\[[0-?]{0,40}[ -/]{0,4}[@-~])"
)
_COLOUR = r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|[@-Z\\-_])"
_DISGUISE = re.compile(rf"[{INVISIBLE}]|{_COLOUR}|{_WRITTEN}")


def undisguised(text: str) -> tuple[str, list[int]] | None:
    """Return a text without its disguises, and for each character its place; None without any."""
    if not _is_disguised(text):
        return None
    parts: list[str] = []
    places: list[int] = []
    end = 0
    for found in _DISGUISE.finditer(text):
        parts.append(text[end : found.start()])
        places.extend(range(end, found.start()))
        end = found.end()
    if end == 0:
        return None
    places.extend(range(end, len(text)))
    return "".join([*parts, text[end:]]), places


# Cheaper than looking for a disguise, and hardly any text has one of them.
_UNSEEN = re.compile(f"[{INVISIBLE}]")
_SPELLED_OUT = re.compile(_WRITTEN)


def _is_disguised(text: str) -> bool:
    if "\x1b" in text or (not text.isascii() and _UNSEEN.search(_beyond_ascii(text))):
        return True
    return "\\" in text and bool(_SPELLED_OUT.search(text))


_ASCII = bytes(range(128))


def _beyond_ascii(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return raw.decode("utf-8", "surrogatepass")


# A token that is wrapped in Base64 is no shorter; a path may look like it.
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{28,}+={0,2}")


def encoded(text: str) -> Iterator[Found]:
    """Find Base64 that holds a token of a known shape, or a private key."""
    for word in _ENCODED.finditer(text):
        inner = _decoded(word[0].rstrip("="))
        if inner and (TOKEN_BEGINNING.search(inner) or "-----BEGIN" in inner):
            for search in TOKEN_SEARCHES:
                found = next(search.find(inner), None)
                if found:
                    yield *word.span(), found[2]
                    break


def _decoded(word: str) -> str:
    """Return the text that Base64 holds; empty where it holds none, as a digest."""
    whole = word[: len(word) - (len(word) % 4 == 1)]
    whole += "=" * (-len(whole) % 4)
    try:
        raw = base64.b64decode(whole, altchars=b"-_" if "-" in word or "_" in word else None)
    except (binascii.Error, ValueError):
        return ""
    return raw.decode("ascii") if raw.isascii() else ""


_IN_BASE64 = bytes(
    ord("a" if re.match(r"[A-Za-z0-9+/_-]", chr(code)) else " ") for code in range(256)
)


def _holds_encoded(words: str) -> bool:
    long = b"a" * 28 in words.encode("ascii").translate(_IN_BASE64)
    return long and next(encoded(words), None) is not None


ENCODED = Search(("",), encoded, _holds_encoded, in_long_words=True)
