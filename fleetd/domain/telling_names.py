"""Which names tell that a secret follows, and which values are no secrets; must not replace any."""

import re

# The end of a telling name, in lower case, as in DB_PASSWORD, x-api-key, clientSecret.
WORDS = r"(?:pass(?:wd|[_-]?(?:word|phrase|code))|pwd|secret|token|credentials?|key)"
# A key tells nothing unless it is said what it opens.
_OPENING = re.compile(
    r"(?:api|access|secret|private|signing|encryption|auth|account|master|session|service|license"
    r"|deploy|subscription|storage|webhook|shared|consumer)[_-]?\Z"
)
# How far back from the end of a name it is looked at.
BEFORE = 40
SUFFIX = (
    r"(?:[_-]?(?:prod(?:uction)?|dev(?:elopment)?|stag(?:e|ing)|test|live|base|value"
    r"|confirm(?:ation)?|old|new|[0-9]{1,3})){0,2}"
)
# Names that end like a secret's and are none.
_HARMLESS = re.compile(
    r"(?:fencing|cancel(?:lation)?|next|page|continuation|stop|start|end|pad|eos|bos|unk|sep|mask"
    r"|max|min|per|last|first|each|every|public|sync|resume|syntax)[_.-]?\Z"
)
_TELLING = re.compile(rf"({WORDS}){SUFFIX}\Z")
_HEADERS = {"authorization": "authorization", "cookie": "cookie", "cookies": "cookie"}

# What stands for a value that is not there: a variable, a mask, what was replaced before.
_GAPS = r"""\$\w+ | \$\([^()]*\)? | \$?\{{1,2}[\w.()!:\ -]*\}{0,2} | %\w+% | %(?:\(\w*\))?[sdr]
    | <[^<>]*>? | [*xX.•_#?-]+ | \[redacted:[a-z0-9-]+\]"""
_FILLERS = r"""your[_-].* | .*[_-]here | change[_-]?me | replace[_-]?me | example | placeholder
    | dummy | redacted | masked | hidden"""
_CODE = r"""secret | token | password | none | null | nil | undefined | true | false | yes | no"""
_FLAGS = re.VERBOSE | re.IGNORECASE
_GAP = re.compile(_GAPS, _FLAGS)
_PLACEHOLDER = re.compile(f"{_GAPS} | {_FILLERS}", _FLAGS)
_NOT_IN_QUOTES = re.compile(f"{_GAPS} | {_FILLERS} | {_CODE}", _FLAGS)
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@%:-]+)+/?")
_PART_MAX = 20
# Nobody writes a longer gap.
_GAP_MAX = 100
_MIXED = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])")


def kind_of(word: str, before: str) -> str | None:
    """Return the kind of secret that a telling word announces; None when it announces none.

    Both are in lower case; ``before`` is what stands in front of the word: next_token is harmless.
    """
    if word.startswith("key"):
        return "key" if _OPENING.search(before) else None
    if word.startswith("pass") or word == "pwd":
        return "password"
    if _HARMLESS.search(before):
        return None
    return "token" if word == "token" else "secret"


def kind_of_name(name: str) -> str | None:
    """Return the kind of secret that a field of this name holds; None for a harmless name."""
    name = lowered(name[-100:])
    if header := _HEADERS.get(name.removeprefix("proxy-").removeprefix("set-")):
        return header
    found = _TELLING.search(name)
    return (
        kind_of(found[1], name[max(0, found.start() - BEFORE) : found.start()]) if found else None
    )


def lowered(text: str) -> str:
    """Return the text in lower case and exactly as long as it was."""
    return text.replace("\u0130", "i").lower()


def is_gap(value: str) -> bool:
    """Whether a value is a variable, a mask or a gap to fill in; a poor password is not."""
    return len(value) <= _GAP_MAX and bool(_GAP.fullmatch(value))


def is_placeholder(value: str, *, quoted: bool) -> bool:
    """Whether a value stands for one that is not there; names of code stand in no quotes."""
    pattern = _PLACEHOLDER if quoted else _NOT_IN_QUOTES
    return len(value) <= _GAP_MAX and bool(pattern.fullmatch(value))


def is_path(value: str) -> bool:
    """Whether a value reads as a path; Base64 may hold slashes too."""
    if not _PATH.fullmatch(value):
        return False
    return not any(len(part) >= _PART_MAX and _MIXED.match(part) for part in value.split("/"))
