"""The needs of an agent in the glossary: each as it is printed."""

from typing import get_args

from fleetctl.output.views.agent_state import NEEDS
from fleetd.protocol.patterns import AgentNeed
from tests.docs.pages import ROOT


def test_the_glossary_has_the_words_of_status_for_each_need() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    table = page.split("## Needs of an agent")[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    told = {need.strip(" `"): words.strip(" `") for need, words in rows}
    assert told == NEEDS
    assert tuple(told) == get_args(AgentNeed)
