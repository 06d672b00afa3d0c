"""The demo's real task: a small library whose functions are missing.

It also contains what an agent "knows": the code that makes each test pass. In a real fleet, a
language model would provide it.
"""

from pathlib import Path
from typing import NamedTuple

# The agents, and the messages by which they coordinate.
DISPATCH = "dispatch-1"
FIRST = "specialist-1"
SECOND = "specialist-2"
SUCCESSOR = "specialist-3"

ORDERS = "Four modules are yours: one sortie, one commit each"
GO_AHEAD = "words.py and sentences.py are there"
QUESTION = "Does a silent e count as a syllable?"
RULING = "A silent e at the end of a word does not count: make has one syllable."
WAITING = "I wait for readability.py"

PACKAGE = "textstats"
TITLE = "Make the tests of textstats pass"
HALF_DONE = "syllables"
NEEDS_WORDS = "frequency"
NEEDS_ALL = "report"


class Module(NamedTuple):
    """One module to write, which is one sortie."""

    name: str
    title: str
    agent: str
    head: str
    body: str
    test: str

    @property
    def file(self) -> str:
        """Return the module's path in the repository."""
        return f"{PACKAGE}/{self.name}.py"

    @property
    def test_module(self) -> str:
        """Return the name by which unittest finds the module's tests."""
        return f"tests.test_{self.name}"

    @property
    def stub(self) -> str:
        """Return the module's source before the work: its functions raise NotImplementedError."""
        return f"{self.head}    raise NotImplementedError\n"

    @property
    def code(self) -> str:
        """Return the module as it should be."""
        return self.head + self.body


class NoRuling(Exception):
    """No message says how to count a silent e."""


PIECES = (
    Module(
        "normalise",
        "Normalise white space",
        FIRST,
        '"""White space."""\n\n\ndef normalise(text: str) -> str:\n'
        '    """Return text with every run of white space as one space."""\n',
        '    return " ".join(text.split())\n',
        'self.assertEqual(normalise(" a\\t b\\n"), "a b")',
    ),
    Module(
        "frequency",
        "Count how often words occur",
        FIRST,
        '"""How often words occur."""\n\nfrom collections import Counter\n\n'
        "from .words import words\n\n\ndef frequency(text: str) -> Counter[str]:\n"
        '    """Return how often each word occurs, upper and lower case alike."""\n',
        "    return Counter(word.lower() for word in words(text))\n",
        'self.assertEqual(frequency("The cat, the dog")["the"], 2)',
    ),
    Module(
        "longest",
        "Find the longest word",
        FIRST,
        '"""Long words."""\n\nfrom .words import words\n\n\ndef longest(text: str) -> str:\n'
        '    """Return the longest word, the first of several; empty without words."""\n',
        '    return max(words(text), key=len, default="")\n',
        'self.assertEqual(longest("one three seven"), "three")',
    ),
    Module(
        "report",
        "Write the report",
        FIRST,
        '"""A text at a glance."""\n\nfrom .readability import reading_ease\n'
        "from .sentences import sentences\nfrom .words import words\n\n\n"
        'def report(text: str) -> str:\n    """Return the figures of a text on one line."""\n',
        "    counts = (len(words(text)), len(sentences(text)), reading_ease(text))\n"
        '    return "{} words, {} sentences, reading ease {:.0f}".format(*counts)\n',
        'self.assertEqual(report("I make tea."), "3 words, 1 sentences, reading ease 119")',
    ),
    Module(
        "words",
        "Split text into words",
        SECOND,
        '"""Words."""\n\nimport re\n\n\ndef words(text: str) -> list[str]:\n'
        '    """Return the words of a text; an apostrophe belongs to its word."""\n',
        '    return re.findall(r"[A-Za-z]+(?:\'[A-Za-z]+)*", text)\n',
        'self.assertEqual(words("I don\'t know."), ["I", "don\'t", "know"])',
    ),
    Module(
        "sentences",
        "Split text into sentences",
        SECOND,
        '"""Sentences."""\n\nimport re\n\n\ndef sentences(text: str) -> list[str]:\n'
        '    """Return the sentences of a text, without what ends them."""\n',
        '    parts = re.split(r"[.!?]+", text)\n'
        "    return [part.strip() for part in parts if part.strip()]\n",
        'self.assertEqual(sentences("One. Two?!"), ["One", "Two"])',
    ),
    Module(
        "syllables",
        "Count syllables",
        SECOND,
        '"""Syllables."""\n\nimport re\n\n\ndef syllables(word: str) -> int:\n'
        '    """Return how many syllables an English word has, at least one."""\n',
        '    groups = len(re.findall("[aeiouy]+", word.lower()))\n'
        '    if groups > 1 and word.lower().endswith("e"):\n'
        "        groups -= 1\n"
        "    return max(groups, 1)\n",
        'self.assertEqual([syllables(w) for w in ("make", "tea", "window")], [1, 1, 2])',
    ),
    Module(
        "readability",
        "Rate how easy a text reads",
        SECOND,
        '"""How easy a text reads."""\n\nfrom .sentences import sentences\n'
        "from .syllables import syllables\nfrom .words import words\n\n\n"
        "def reading_ease(text: str) -> float:\n"
        '    """Return the Flesch reading ease; high is easy. The text needs a word."""\n',
        "    found = words(text)\n"
        "    per_sentence = len(found) / len(sentences(text))\n"
        "    per_word = sum(map(syllables, found)) / len(found)\n"
        "    return 206.835 - 1.015 * per_sentence - 84.6 * per_word\n",
        'self.assertAlmostEqual(reading_ease("I make tea."), 119.19)',
    ),
)


def piece_of(file: str) -> Module:
    """Return the module that a file of the repository belongs to."""
    return next(piece for piece in PIECES if piece.file == file)


def half(piece: Module) -> str:
    """Return a module as it looks when its author is killed in the middle of a line."""
    return piece.code[: piece.code.index('"e"):')]


def rest(piece: Module, half_written: str, mail: str) -> str:
    """Return the missing part of a half-written module.

    It depends on a ruling that came by mail. Raises NoRuling when ``mail`` does not contain it, and
    ValueError when the file is not the one that was left behind.
    """
    if RULING not in mail:
        raise NoRuling(f"No message answers the question: {QUESTION}")
    if not half_written or not piece.code.startswith(half_written):
        raise ValueError(f"{piece.file} does not go on from what was left behind")
    return piece.code[len(half_written) :]


def lay_out(project: Path) -> None:
    """Write the library, without its functions, and its tests into an empty directory."""
    for directory in (project / PACKAGE, project / "tests"):
        directory.mkdir(parents=True)
        (directory / "__init__.py").touch()
    (project / ".gitignore").write_text("__pycache__/\n")
    for piece in PIECES:
        (project / piece.file).write_text(piece.stub)
        (project / "tests" / f"test_{piece.name}.py").write_text(_test(piece))


def _test(piece: Module) -> str:
    function = piece.head.rpartition("def ")[2].partition("(")[0]
    return (
        f"import unittest\n\nfrom {PACKAGE}.{piece.name} import {function}\n\n\n"
        f"class {function.title().replace('_', '')}Test(unittest.TestCase):\n"
        f"    def test_{function}(self) -> None:\n        {piece.test}\n"
    )
