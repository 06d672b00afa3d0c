"""A search finds what a look through every text finds, on whichever store."""

import random
import unicodedata

from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.note import NoteAdd
from fleetd.protocol.requests.search import SearchQuery
from tests.support.fleet import Fleet

DOCUMENTS, QUERIES, SEED = 1_000, 1_000, 20_261_123
PLAIN = (
    *("login", "Login", "logins", "the", "a", "form", "Form", "über", "ÜBER", "uber", "naïve"),
    *("Straße", "STRASSE", "don't", "x1", "42", "née", "İstanbul", "½", "日本", "привет", "ПРИВЕТ"),
    *("हिन्दी", "null", "AND", "OR", "NOT", "NEAR", "*", '"', "#123", "(see", "that)", "end."),
)
# Paths and identifiers, as the index has them.
NAMES = {
    **{each: each for each in ("src/login_form.py", "src/auth/login.py", "parse_config", "4.2")},
    **{each: each for each in ("a::b", "x86_64", "e-mail", "user@example.org", "日本語")},
    "ParseConfig": "parseconfig",
    "C:\\Work\\A.txt": "c:\\work\\a.txt",
    "--dry-run": "dry-run",
}
WORDS = (*PLAIN, *NAMES)


def is_letter(each: str) -> bool:
    return unicodedata.category(each)[0] in "LN"


def folded(text: str) -> str:
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", text))
    return "".join(each for each in parts if not unicodedata.combining(each)).casefold()


def words(text: str) -> list[str]:
    """Return the words of a text, letter by letter."""
    found, word = [], ""
    for each in [*unicodedata.normalize("NFC", text), " "]:
        if is_letter(each):
            word += each
            continue
        run = ""
        for part in [*folded(word), " "]:
            if is_letter(part):
                run += part
            elif run:
                found.append(run)
                run = ""
        word = ""
    return found


def has(text: list[str], wanted: list[str], *, beginning: bool) -> bool:
    """Whether wanted words follow each other in a text, of the last at least its beginning."""
    for at in range(len(text) - len(wanted) + 1):
        there = text[at : at + len(wanted)]
        if there == wanted:
            return True
        begins = beginning and there[-1].startswith(wanted[-1])
        if begins and there[:-1] == wanted[:-1]:
            return True
    return False


def names(text: str) -> list[str]:
    """Return the paths and identifiers of a text, as the index has them."""
    return [NAMES[word] for word in text.split() if word in NAMES]


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, 8)))


async def record(fleet: Fleet, mission_id: str, chance: random.Random, number: int) -> str:
    """Record a text of some kind, and return it."""
    text = sentence(chance)
    kind = chance.choice(("prompt_submitted", "agent_answered", "my_type", "mail", "note"))
    if kind == "mail":
        body = sentence(chance)
        await fleet.do(MessageSend("ann", ["bob"], text, body=body))
        return f"{text} {body}"
    if kind == "note":  # the same twice is one
        text = f"{text} {number}"
        await fleet.do(NoteAdd("finding", text, mission_id=mission_id))
        return text
    field = {"prompt_submitted": "prompt", "agent_answered": "message"}.get(kind, "told")
    await fleet.do(EventAppend(kind, data={field: text}))
    return text


def question(chance: random.Random) -> list[str]:
    """Return words, now and then the beginning of one or the middle of a name."""
    typed = chance.choices(WORDS, k=chance.randint(1, 3))
    luck = chance.random()
    if luck < 0.2:
        typed[-1] = typed[-1][: chance.randint(2, 6)] + "*"
    elif luck < 0.5:
        name = chance.choice(list(NAMES))
        start = chance.randint(0, 3)
        typed = [name[start : start + chance.randint(3, 9)]]
    return [each for each in typed if words(each)]


async def test_a_thousand_queries_find_what_is_there(fleet: Fleet) -> None:
    mission = await fleet.mission(sorties=0, title="1")
    chance, texts = random.Random(SEED), dict[int, str]()
    for number in range(DOCUMENTS):
        text = await record(fleet, mission.id, chance, number + 1_000)
        [newest] = fleet.sql("SELECT max(seq) AS seq FROM events")
        texts[newest["seq"]] = text
    known = {place: words(text) for place, text in texts.items()}
    named_in = {place: names(text) for place, text in texts.items()}
    by_words = by_names = 0
    for _ in range(QUERIES):
        typed = question(chance)
        if not typed or any(each.endswith("*") and len(words(each)[-1]) < 3 for each in typed):
            continue
        wanted = [(words(each), each.endswith("*")) for each in typed]
        said = {
            place
            for place, text in known.items()
            if all(has(text, some, beginning=star) for some, star in wanted)
        }
        named, parts = set[int](), [folded(each) for each in typed]
        if all(len(part) >= 3 and "*" not in each for part, each in zip(parts, typed, strict=True)):
            named = {
                place
                for place, there in named_in.items()
                if all(any(part in name for name in there) for part in parts)
            }
        page = await fleet.do(SearchQuery(" ".join(typed), limit=1_000))
        assert [hit.seq for hit in page.hits] == sorted(said | named, reverse=True), typed
        assert all(hit.marks for hit in page.hits if hit.seq in said), typed
        by_words, by_names = by_words + bool(said), by_names + bool(named - said)
    assert by_words > QUERIES / 4
    assert by_names > QUERIES / 20
