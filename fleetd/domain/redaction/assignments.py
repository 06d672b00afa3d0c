"""Secrets that a telling name announces: NAME=value, "name": "value", --name value.

Every form begins with the name, and the text after it decides the form. So a text is scanned once,
from one telling word to the next.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from .key_names import (
    BEFORE,
    SHORTENED,
    SUFFIX,
    WORDS,
    is_gap,
    is_path,
    is_placeholder,
    kind_of,
    kind_of_name,
    lowered,
    may_be_key,
)
from .tokens import Found
from .values import (
    PROMISING,
    Value,
    element_at,
    is_not_count,
    is_opaque,
    is_secret,
    quoted_at,
    value_at,
)

# The beginnings of all telling words, in lower case.
BEGINNINGS = ("pass", "pw", "secret", "token", "credential", "key")
# A text with more telling names than NAMES_MAX, or with more than CANDIDATES_MAX before possible
# secrets, consists of them: scanning all would keep the daemon busy.
NAMES_MAX, CANDIDATES_MAX = 4_000, 2_000
_BREAK = r"(?:(?:\\{1,2}r)?\\{1,2}n|\r?\n)"
_HEAD = re.compile(
    rf"({WORDS}){SUFFIX}(?P<quote>\\{{0,3}}[\"'`]\]?)?(?P<space>[ \t]{{0,4}})"
    r"(?P<sign>=>|:=|={1,3}|:|%3[da]|\\{1,3}u003[da]|[,>(])?"
)
# A type between the name and its value: token: str | None = "..."
_TYPE = re.compile(r"[ \t]{0,4}&?[a-z_][\w.\[\]|]{0,38}+(?: \| none)?+ = ")
_SPACES = re.compile(r"[ \t]{0,4}")
_PROMISING = re.compile(PROMISING)


def named(text: str) -> Iterator[Found]:
    """Find the values of telling names."""
    lower = lowered(text)
    position = tried = 0
    starts = _starts(lower)
    for start in islice(starts, NAMES_MAX):
        if start < position:
            continue
        head = _HEAD.match(lower, start)
        form = _form(text, lower, head) if head else None
        if head is None or form is None:
            continue
        tried += 1
        if tried > CANDIDATES_MAX:
            position = start
            break
        before = _before(lower, head)
        name = Name(text, lower, head, before, kind_of(head[1], before) or "")
        if (name.kind or form in _ANY_KIND) and (found := form(name)):
            position = found[1]
            yield found
    else:
        if len(starts) <= NAMES_MAX:
            return
        position = max(position, starts[NAMES_MAX])
    yield position, len(text), "not-scanned"


def _starts(lower: str) -> list[int]:
    """Return where telling words begin, from left to right."""
    found = []
    # The output of tests has these words on every line, where they announce no secret.
    lower = lower.replace("passed", "######").replace("passes", "######")
    for word in BEGINNINGS:
        at, left = lower.find(word), NAMES_MAX + 1  # more are not scanned
        while at >= 0 and left:
            found.append(at)
            at, left = lower.find(word, at + len(word)), left - 1
    return sorted(found)


class Name(NamedTuple):
    """A telling name in a text and in its lower case; ``kind`` is empty where it announces none."""

    text: str
    lower: str
    head: re.Match[str]
    before: str
    kind: str


Form = Callable[[Name], Found | None]


def _form(text: str, lower: str, head: re.Match[str]) -> Form | None:
    """Return the form in which a name's value is written; None if no possible secret follows."""
    sign = head["sign"]
    if sign is None:
        if head["quote"]:
            return _attribute
        if head["space"]:
            return _spaced
        return _on_next_line if lower.startswith(("\n", "\\n"), head.end()) else None
    if sign == ",":
        return _argument if head["quote"] else None
    if sign == ">":
        return _element
    if sign == "(":
        return _statement
    if sign[0] in "=%\\" and not head["quote"]:
        before = _before(lower, head)
        if ("&" in before or "?" in before or "%" in before or "u0026" in before) and (
            _QUERY.search(before)
        ):
            return _in_query
    if sign == ":" and _BLOCK.match(text, head.end()):
        return _block
    return _assigned if _could_be(text, lower, head) else None


def _before(lower: str, head: re.Match[str]) -> str:
    return lower[max(0, head.start() - BEFORE) : head.start()]


def _found(name: Name, value: Value, kind: str = "") -> Found:
    return value.start, value.end(name.text), kind or name.kind


def _judged(name: Name, value: Value | None, style: str) -> Found | None:
    return _found(name, value) if value and is_secret(name.kind, value, style) else None


# NAME=value, name = "value", "name": "value", ?name=value, and YAML's blocks.

_QUERY = re.compile(r"(?:[?&]|%3f|%26|u0026)[a-z0-9_.-]{0,40}\Z")
_IN_QUERY = re.compile(r"[^&#\s\"'`<>\\]{3,2000}")
_IN_ENCODED = re.compile(r"(?:(?!%26|%23)[^&#\s\"'`<>\\]){3,2000}")
_BLOCK = re.compile(rf"[ \t]*[>|][+-]?[0-9]?[+-]?[ \t]*({_BREAK})([ \t]+)(?=\S)")


def _could_be(text: str, lower: str, head: re.Match[str]) -> bool:
    """Return whether a value needs a closer look; most are code."""
    if _PROMISING.match(lower, _value_start(lower, head)):
        return True
    style = _style(head, text)
    password = head[1].startswith(("pass", "pw"))
    return style == "shell" or (password and (style == "tight" or head["sign"] in (":", "=")))


def _value_start(lower: str, head: re.Match[str]) -> int:
    typed = _TYPE.match(lower, head.end()) if head["sign"] == ":" else None
    spaces = _SPACES.match(lower, typed.end() if typed else head.end())
    return spaces.end() if spaces else head.end()


def _assigned(name: Name) -> Found | None:
    text, head, kind = name.text, name.head, name.kind
    style = _style(head, text)
    value = value_at(text, _value_start(name.lower, head), to_space=style == "shell")
    if kind and _is_setting(text, head, value):
        return None if _is_reference(value.text) else _found(name, value)
    if not kind and style == "shell" and head[1] == "key" and is_opaque(value.text):
        kind = "key" if may_be_key(name.before) else ""
    bare_password = (
        kind == "password" and style == "loose" and not value.quoted and head["sign"] == ":"
    )
    if bare_password and _looks_chosen(head[1], value):
        return _found(name, value)
    if not kind or (head[1] in SHORTENED and not is_not_count(value, style)):
        return None
    return _found(name, value, kind) if is_secret(kind, value, style) else None


def _looks_chosen(name: str, value: Value) -> bool:
    """Return whether the value of a bare ``password:`` is a password, not a word of a sentence."""
    return _is_chosen(value.text, value.next) or (name == "pw" and _is_password(value.text))


_SETTING_NAME = re.compile(r"(?:\A|\n)[ \t]*[\w.-]{0,60}\Z")
_SECTION = re.compile(r"(?:\A|\n)\[[\w. :/-]{1,60}\][ \t]*\r?(?:\n(?!\[)[^\n]*+){1,41}+\Z")
_LINE_END = re.compile(r"[ \t]*(?:\r?\n|\Z)")


def _is_setting(text: str, head: re.Match[str], value: Value) -> bool:
    """Return whether a name and its value are a line of a settings file, which has no code.

    Such a line is NAME=value with nothing else, or any line below the [section] of an INI file.
    """
    if head["sign"] != "=" or value.quoted or "(" in value.text:
        return False
    if not 3 <= len(value.text) < _LONGEST_CHOSEN:
        return False
    if not _LINE_END.match(text, value.end(text)):
        return False
    before = text[max(0, head.start() - 2_000) : head.start()]
    if not _SETTING_NAME.search(before):
        return False
    tight = not head["space"] and text[head.end() : head.end() + 1] not in " \t"
    unindented = before.rpartition("\n")[2][:1] not in " \t" or not before
    return (tight and unindented) or bool(_SECTION.search(before))


def _is_reference(word: str) -> bool:
    """Return whether a value is a path, a gap, or another name: password=config.password."""
    return is_path(word) or is_placeholder(word, quoted=False) or kind_of_name(word) is not None


def _style(head: re.Match[str], text: str) -> str:
    sign = head["sign"]
    if len(sign) > 2 and sign[0] in "%\\":
        return "tight"  # it is written for a machine
    if sign != "=" or head["space"] or head["quote"] or text[head.end() : head.end() + 1] in " \t":
        return "loose"
    return "shell" if text[head.start(1) : head.end(1)].isupper() else "tight"


def _in_query(name: Name) -> Found | None:
    inside = _IN_QUERY if name.head["sign"] == "=" else _IN_ENCODED
    value = inside.match(name.text, name.head.end())
    if value is None or value[0].startswith("[redacted:"):
        return None
    word = value[0].rstrip(".,!?;:)]}")
    if len(word) < 3 or is_placeholder(word, quoted=True) or "(" in word or word[0] in "%${":
        return None
    return value.start(), value.start() + len(word), name.kind


def _block(name: Name) -> Found | None:
    block = _BLOCK.match(name.text, name.head.end())
    if block is None:
        return None
    lines = re.compile(
        r"(?:(?!\\{1,2}n)[^\r\n])+"
        rf"(?:{re.escape(block[1])}{block[2]}[ \t]*(?:(?!\\{{1,2}}n)[^\r\n])+)*"
    ).match(name.text, block.end())
    if lines is None or is_gap(lines[0].strip()):
        return None
    return *lines.span(), name.kind


# <name>value</name>, <add key="name" value="value">, <entry key="name">value</entry>

_OPENING = re.compile(r"<[\w.:-]{0,40}\Z")
_PAIR = re.compile(r"[\w.-]{1,12}[ \t]{0,3}=[ \t]{0,3}\\{0,3}[\"'][\w.: -]{0,60}\Z")
_VALUE = re.compile(r"[ \t\r\n]{1,20}value[ \t]{0,3}=[ \t]{0,3}(?=\\{0,3}[\"'])")


def _element(name: Name) -> Found | None:
    text, head = name.text, name.head
    opening = _PAIR if head["quote"] else _OPENING
    opened = opening.search(name.lower[max(0, head.start() - 80) : head.start()])
    if opened is None or text.find("</", head.end(), head.end() + 1_000) < 0:
        return None
    return _judged(name, element_at(text, head.end()), "loose")


def _attribute(name: Name) -> Found | None:
    lower, head = name.lower, name.head
    paired = _VALUE.match(lower, head.end("quote"))
    if paired and _PAIR.search(lower[max(0, head.start() - 80) : head.start()]):
        return _judged(name, value_at(name.text, paired.end()), "tight")
    return _set(name) if head["space"] else None


_NEXT_LINE = re.compile(rf"{_BREAK}[ \t]{{1,40}}value:[ \t]{{1,4}}(?=\S)")


def _on_next_line(name: Name) -> Found | None:
    """Find the value of a name in a list of YAML: - name: NAME, and value: below it."""
    text, head = name.text, name.head
    line = _NEXT_LINE.match(name.lower, head.end())
    if line is None:
        return None
    value = value_at(text, line.end(), to_space=True)
    shouted = text[head.start(1) : head.end(1)].isupper() and len(value.text) >= 3
    secret = shouted and not is_placeholder(value.text, quoted=True) and not is_path(value.text)
    return _found(name, value) if secret else _judged(name, value, "tight")


# f("name", "value")


def _argument(name: Name) -> Found | None:
    spaces = _SPACES.match(name.text, name.head.end())
    value = quoted_at(name.text, spaces.end() if spaces else name.head.end())
    found = _judged(name, value, "tight")
    return found if value and found and _is_argument(name.text, name.head, value.text) else None


_NAME_END = re.compile(r"[\w.:-]*\Z")


def _is_argument(text: str, head: re.Match[str], value: str) -> bool:
    """Return whether the string after a name is its value, not the next name of a list."""
    if any(map(str.isdigit, value)):
        return not value.isidentifier() or is_opaque(value) or "_" not in value
    name = _NAME_END.search(text[max(0, head.start() - 60) : head.start()])
    full_name = (name[0] if name else "") + text[head.start() : head.end(1)]
    setting = ("_" in full_name and full_name.isupper()) or "." in full_name
    return setting and value.islower() and len(value) >= 8 and value.isalpha()


# --name value, set name value, PASSWORD 'value', the password is value

_FLAG = re.compile(r"(?<![\w-])--?(?:[a-z0-9]{1,20}-){0,4}[a-z0-9]{0,12}\Z")
_SETTING = re.compile(
    # fish, csh, Windows, Dockerfile; aws configure set, npm config set, git config.
    r"(?<![\w-])(?:set(?:x|env)?|env|config)(?:[ \t]+(?:set|--?[a-z-]{1,12})){0,4}[ \t]+"
    r"[\"']?([\w./:-]{0,60})\Z"
)
_STATED = re.compile(r"\(?[ \t]{0,3}(?=')")
_STOPS = re.compile(r"\s*(?:\Z|[\"'\r\n;|&)]|-)")
_WORDS_AFTER_FLAGS = """
    option options file prompt argument flag value instead required missing given and with for
    string here there
"""
_NOT_PASSWORDS = frozenset(_WORDS_AFTER_FLAGS.split())


def _spaced(name: Name) -> Found | None:
    """Find the value of a name that is followed only by a space."""
    if name.before.rpartition(" ")[2].startswith("-"):
        return _flag(name) if name.kind and _FLAG.search(name.before) else None
    if name.text.startswith("'", name.head.end()):
        return _statement(name)
    return ((_declared(name) or _set(name)) if name.kind else None) or _in_sentence(name)


# A type after the name, as in Go; the default of an unset variable; SQL's FOR user.
_DECLARED = re.compile(
    r"(?:[a-z_][\w.\[\]*]{0,38} = ?|(?:\|\||\?\?|or) |for [^\s=]{1,100} = )(?=[\"'`])"
)


def _declared(name: Name) -> Found | None:
    declared = _DECLARED.match(name.lower, name.head.end())
    return _judged(name, quoted_at(name.text, declared.end()), "loose") if declared else None


def _flag(name: Name) -> Found | None:
    value = value_at(name.text, name.head.end())
    word = value.text
    if word.startswith("-"):
        return None
    # A word may be a password if the command ends after it, or the next option begins.
    alone = (
        name.kind == "password" and word.isalpha() and len(word) >= 6 and word not in _NOT_PASSWORDS
    )
    if alone and _STOPS.match(name.text, value.start + len(word)):
        return _found(name, value)
    return _judged(name, value, "loose")


def _statement(name: Name) -> Found | None:
    head = name.head
    stated = _STATED.match(name.text, head.end() - (head["sign"] == "("))
    value = quoted_at(name.text, stated.end()) if stated else None
    if value is None or " " in value.text or not head[1].startswith("passw"):
        return None
    return _judged(name, value, "loose")


def _set(name: Name) -> Found | None:
    setting = _SETTING.search(name.lower[max(0, name.head.start() - 120) : name.head.start()])
    if setting is None:
        return None
    value = value_at(name.text, name.head.end())
    word = value.text
    # A word of a sentence is no name, as in "set the token to", and has no value.
    is_name = bool(setting[1]) and len(word) >= 6 and not word.startswith(("-", "="))
    if (
        is_name
        and not word.isalpha()
        and not is_gap(word)
        and not is_path(word)
        and "(" not in word
    ):
        return _found(name, value)
    return _judged(name, value, "loose") or (_judged(name, value, "tight") if is_name else None)


# Nobody chooses a longer password, and text that is scanned repeatedly has to be short.
_LONGEST_CHOSEN = 100
_IS = re.compile(
    r"(?:(?:for|of|to|on) [^\n.:=]{1,40}? )?"
    r"(?:(?:is|will|has|should|must)(?: now| to)?(?: be)?|was|to|are|[:=])[: ] ?"
    r"(?=[\"'`]|[^\s\"'`]{6}|[\w.@-]{1,40} ?/)"
)
_USER_AND = re.compile(r"[\w.@-]{1,40} ?/ ?")
_AS = re.compile(
    r"(?<![^\s\"'`])([^\s\"'`]{16,}+)[\"'`]? as (?:the |my |your |an? )?(?:[a-z]+ ){0,3}\Z",
    re.IGNORECASE,
)
_WITH = re.compile(r"(?:with|using|use|and|by) (?:the )?(?:[a-z]+ )?\Z")
_STATE = re.compile(
    r"\w*(?:ed|ing|able|ible|ive|al|ful|ly|ent|ant|less|ic|ous|ary|ory|ship|ness|ion)|str(?:ing)?"
    r"|number|boolean|object|wrong|correct|secret|plain|plaintext|public|private|stale|broken|absent"
    r"|unknown|hidden|written|stolen|bearer|generic|default|random|simple|strong|weaker|longer"
    r"|shorter|stronger|somewhere|nothing|another|settings?|values?|strings?|please|before|after"
    r"|nobody|someone|everyone|anyone|whatever"
)


def _in_sentence(name: Name) -> Found | None:
    """Find a secret in a sentence: the password is ..."""
    text, lower, head, before, _ = name
    kind = kind_of(head[1], before.replace(" ", "-"))
    if kind is None:
        return None
    reversed_ = _AS.search(text[max(0, head.start() - 260) : head.start()])
    if reversed_ and is_opaque(reversed_[1]):
        start = max(0, head.start() - 260) + reversed_.start(1)
        return start, start + len(reversed_[1]), kind
    verb = _IS.match(lower, head.end())
    position = verb.end() if verb else head.end()
    quoted = quoted_at(text, position) if verb else None
    if quoted is not None:
        return _found(name, quoted, kind) if _is_quoted_secret(kind, quoted.text) else None
    if verb and head[1].startswith("credential"):
        named = _USER_AND.match(text, position)
        position = named.end() if named else position
    value = value_at(text, position, to_space=True)
    word = value.text.rstrip(".,!?;:)")
    if is_gap(word) or is_path(word) or "(" in word:
        return None
    end = value.start + len(word)
    with_it = kind == "password" and _WITH.search(before)
    if verb or with_it:
        secret = _is_password(word) or (
            bool(verb) and kind == "password" and _is_chosen(word, _after(text, end))
        )
    else:
        secret = is_opaque(word) and len(word) >= 20 and word.replace("_", "").isalnum()
    return (value.start, end, kind) if secret else None


# These forms find secrets even where the name alone announces none.
_ANY_KIND = (_assigned, _spaced, _statement)

_NAME_OF_CODE = re.compile(r"[\w.-]*[_.:/][\w.-]*")
_SIGNS = frozenset("!#%&*+?@^~=")


def _is_password(word: str) -> bool:
    """Return whether a word is in no language: it mixes letters with digits or signs."""
    if not 6 <= len(word) <= 200 or not any(map(str.isalpha, word)):
        return False
    mixed = any(each.isdigit() or each in _SIGNS for each in word)
    return mixed and _NAME_OF_CODE.fullmatch(word) is None


_THEN = re.compile(r" (?:please|and|so|then|thanks)\b")


def _after(text: str, end: int) -> str:
    """Return the character after a word; empty where another sentence begins without one."""
    return "" if _THEN.match(text, end) else text[end : end + 1]


def _is_chosen(word: str, after: str) -> bool:
    """Return whether the last word of a sentence about a password is a chosen password.

    Other words there describe passwords: wrong, required, missing.
    """
    last = len(word) < _LONGEST_CHOSEN and after in ("", "\n", "\r", ".", ",", ";", "\\", '"')
    return last and word.isalpha() and word.islower() and len(word) >= 7 and not _is_state(word)


def _is_state(word: str) -> bool:
    return _STATE.fullmatch(word) is not None


def _is_quoted_secret(kind: str, quoted: str) -> bool:
    """Return whether a quoted text after "the password is" is one, perhaps of several words."""
    if kind != "password" or len(quoted) < 6 or is_placeholder(quoted, quoted=True):
        return kind != "password" and (is_opaque(quoted) or _is_password(quoted))
    return not _is_state(quoted)
