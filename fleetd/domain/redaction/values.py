"""Values in a text: where they begin and end, and whether they may be secrets."""

import re
from typing import NamedTuple

from .key_names import SPACES, is_path, is_placeholder

_OPENING = re.compile(r"""(?:\b[bfrunBFRUN]{1,2})?(\\{0,3})(["'`])""")
_CLOSED = {
    '"': re.compile(r'(?:[^"\\\r\n]++|\\[^\r\n])*+'),
    "'": re.compile(r"(?:[^'\\\r\n]++|\\[^\r\n])*+"),
    "`": re.compile(r"(?:[^`\\\r\n]++|\\[^\r\n])*+"),
}
_CONTENT = re.compile(r"[^<>\r\n]*+")
_ESCAPED = re.compile(r"""[^"'`\\\r\n]*+""")
_REPLACED = r"\[redacted:[a-z0-9-]+\]"
_PLAIN = re.compile(rf"""(?:[^{SPACES}"'`<>(){{}}\[\],;&|\\]++|{_REPLACED})*+""")
_SHELL = re.compile(rf"""[^{SPACES}"'`;&|\\]*+""")
_LINE = re.compile(r"(?:[^\\\r\n]++|\\(?![nr]))*+")
# Matches before a value that may be a secret although only its name is known: it is quoted, or has
# a digit.
PROMISING = (
    r"""(?=[bfrunBFRUN]{0,2}\\{0,3}["'`]|[^\t-\r\x1c-\x20"'`<>(){},;&|\\0-9]{0,127}+[0-9])"""
)
_SPACE = re.compile(r"\s")
_OPEN_CODE = ("(", "[")
_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)*")
_DIGIT = re.compile(r"[0-9]")
_LETTERS = re.compile(r"[A-Za-z]+")


# The number of characters of a value that are judged. A kept value may contain the next candidate
# and is then scanned again, so the scanned part has to be short.
_JUDGED = 128


class Value(NamedTuple):
    """A value in a text: its beginning, which is judged, and how to find its end."""

    start: int
    text: str
    quoted: bool
    next: str
    inside: re.Pattern[str]

    def end(self, text: str) -> int:
        """Return where the value ends in its text."""
        found = self.inside.match(text, self.start)
        end = found.end() if found else self.start
        return end if self.quoted else _without_stop(text, self.start, end)

    def after(self, text: str, start: int) -> "Value":
        """Return the rest of the value from a later position on."""
        return _value(text, start, self.inside, quoted=self.quoted)


def _value(text: str, start: int, inside: re.Pattern[str], *, quoted: bool) -> Value:
    found = inside.match(text, start, start + _JUDGED)
    end = found.end() if found else start
    if not quoted:
        end = _without_stop(text, start, end)
    return Value(start, text[start:end], quoted, text[end : end + 1], inside)


def _without_stop(text: str, start: int, end: int) -> int:
    """Return the end of a value without the punctuation of a sentence around it."""
    return start + len(text[start:end].rstrip(".:,!?"))


def quoted_at(text: str, position: int) -> Value | None:
    """Return the quoted value that begins at a position; one left open ends with its line."""
    opening = _OPENING.match(text, position)
    if opening is None:
        return None
    escapes, quote = opening.groups()
    return _value(text, opening.end(), _ESCAPED if escapes else _CLOSED[quote], quoted=True)


def value_at(text: str, position: int, *, to_space: bool = False) -> Value:
    """Return the value that begins at a position; ``to_space`` extends it like a shell's word."""
    quoted = quoted_at(text, position)
    return quoted or _value(text, position, _SHELL if to_space else _PLAIN, quoted=False)


def element_at(text: str, position: int) -> Value:
    """Return the content of an XML element that begins at a position."""
    return _value(text, position, _CONTENT, quoted=True)


def header_at(text: str, name: int, position: int) -> Value:
    """Return the value of a header whose name is at ``name``, up to the end of quotes or line.

    The quotes are around the value, or around the whole header, or there are none.
    """
    if quoted := quoted_at(text, position):
        return quoted
    quote = text[name - 1 : name]
    if quote not in _CLOSED:
        return _value(text, position, _LINE, quoted=False)
    escaped = text[name - 2 : name - 1] == "\\"
    return _value(text, position, _ESCAPED if escaped else _CLOSED[quote], quoted=True)


def is_secret(kind: str, value: Value, style: str) -> bool:
    """Return whether the value of a telling name is a secret, not code or a gap to fill in.

    ``style`` is how it was given: ``shell`` (NAME=value), ``tight`` (name=value) or ``loose``
    (name: value, --name value), where words of a sentence may follow.
    """
    text = value.text
    if len(text) < (3 if kind == "password" else 6):
        return False
    if value.quoted:
        could_be = kind == "password" or not _SPACE.search(text)
    elif value.next in _OPEN_CODE:
        could_be = False
    else:
        could_be = "(" not in text if style == "shell" else _stands_out(kind, text, style)
    # The cheap checks come first.
    return could_be and not is_path(text) and not is_placeholder(text, quoted=value.quoted)


def is_not_count(value: Value, style: str) -> bool:
    """Return whether the value of "pass" may be a password, not how many or what passed."""
    if value.text.isdigit() or _SPACE.search(value.text):
        return False
    return value.quoted or style != "loose"


def _stands_out(kind: str, text: str, style: str) -> bool:
    """Return whether an unquoted value is unlike the names and words of code and prose."""
    if style == "tight" and kind == "password" and _LETTERS.fullmatch(text):
        return True
    digits = len(_DIGIT.findall(text))
    if _NAME.fullmatch(text) and (digits == 0 or "." in text or "_" in text):
        return len(text) >= 20 and digits > 3
    if kind == "password":
        return len(text) >= 4 if style == "tight" else digits > 0 and len(text) >= 6
    return len(text) >= 8 and digits > 0 and (len(text) >= 16 or not text.isdigit())


def is_opaque(text: str) -> bool:
    """Return whether a word is made of mixed characters, as tokens are and words are not."""
    kinds = (str.isdigit, str.islower, str.isupper)
    return len(text) >= 16 and sum(any(map(kind, text[1:100])) for kind in kinds) >= 2
