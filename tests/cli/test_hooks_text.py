"""Hooks in and out of a settings text: every other byte stays, whatever people wrote."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.integrations import jsonc
from fleetctl.integrations.hook_command import ENFORCE, Installation
from fleetctl.integrations.hooks import UnusableSettings, found, put_in, take_out
from fleetctl.integrations.jsonc import append, remove
from fleetctl.integrations.registry import (
    ANTIGRAVITY,
    CLAUDE,
    CODEX,
    COPILOT,
    CURSOR,
    GEMINI,
    Harness,
)

HERE = Installation("/opt/fleet/bin/python3", "/opt/fleet/lib/fleetctl/hook.py")
ENFORCING = frozenset({ENFORCE})
OTHERS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "guard"}]}


def wanted(harness: Harness, *, enforce: bool = False) -> list[Any]:
    return [
        (e, HERE.command(harness, e, words=ENFORCING if enforce else frozenset()))
        for e in harness.events
    ]


def installed(text: str, harness: Harness = CLAUDE) -> str:
    return put_in(text, harness, wanted(harness))


LAYOUTS = {
    "plain": '{\n  "model": "opus",\n  "hooks": {\n    "Stop": [\n      {"b": []}\n    ]\n  }\n}\n',
    "no hooks": '{\n    "model": "opus"\n}',
    "one line": '{"model":"opus","hooks":{"Stop":[{"hooks":[]}]}}',
    "empty object": "{}",
    "empty object with room": "{\n}\n",
    "empty parts": '{"hooks": {"Stop": [], "PreToolUse": [ ]}}',
    "empty parts with remarks": '{\n  "hooks": {\n    // none yet\n  } // so far\n}\n',
    "empty hooks": '{\n\t"hooks": {}\n}\n',
    "tabs": '{\n\t"hooks": {\n\t\t"Stop": [\n\t\t\t{"hooks": []}\n\t\t]\n\t}\n}\n',
    "windows": '{\r\n  "model": "opus",\r\n  "hooks": {\r\n    "Stop": [\r\n    ]\r\n  }\r\n}\r\n',
    "mark in front": '\ufeff{\n  "model": "opus"\n}\n',
    "trailing commas": '{\n "a": [1,],\n  "hooks": {\n  "Stop": [\n   {"b": [],},\n  ],\n },\n}\n',
    "trailing comma and remark": '{\n  "hooks": {\n    "Stop": [], // one\n  }, // two\n}\n',
    "remarks": (
        '// top\n{\n  "a": 1, // a\n  /* b */ "hooks": { // c\n    "Stop": [{"b": []} /* d */]\n'
        "  } // e\n  // f\n} // g\n"
    ),
    "a remark like a comma": '{\n  "url": "http://x/y", // a, b\n  "last": true // no comma\n}\n',
    "closing on the line": '{\n  "hooks": {\n    "Stop": [{\n      "hooks": []\n    }]\n  }}',
    "blank": "",
    "only blanks": "\n  \n",
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize(
    "harness", [CLAUDE, CODEX, GEMINI, CURSOR, COPILOT, ANTIGRAVITY], ids=lambda h: h.name
)
def test_what_was_put_in_is_taken_out_without_a_trace(text: str, harness: Harness) -> None:
    after = installed(text, harness)
    assert {each.event for each in found(after, harness)} == {e.name for e in harness.events}
    assert put_in(after, harness, wanted(harness)) == after
    assert take_out(after, harness, text) == text


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_nothing_else_is_changed_by_putting_in(text: str) -> None:
    """Without the lines and words that came, the old text is there, in order."""
    after = installed(text)
    rest = iter(after)
    assert all(char in rest for char in text.strip())
    before = {} if jsonc.is_blank(text) else jsonc.parse(text).value()
    assert {k: v for k, v in jsonc.parse(after).value().items() if k != "hooks"} == {
        k: v for k, v in before.items() if k != "hooks"
    }


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_what_was_written_since_stays(text: str) -> None:
    """A setting that somebody added after the installation outlives the hooks."""
    after = append(text_ := installed(text), jsonc.parse(text_), "dark", key="theme")
    left = take_out(after, CLAUDE, text)
    assert left is not None
    before = {} if jsonc.is_blank(text) else jsonc.parse(text).value()
    assert jsonc.parse(left).value() == before | {"theme": "dark"}
    assert not found(left, CLAUDE)


def test_a_file_that_the_hooks_made_is_nothing_without_them() -> None:
    for harness in (CLAUDE, CURSOR):
        assert take_out(installed("", harness), harness, None) is None


def direct(*, enforce: bool = False) -> list[Any]:
    here = HERE._replace(launcher="/home/you/.local/share/fleet/fleet-hook")
    return [
        (e, here.command(CLAUDE, e, words=ENFORCING if enforce else frozenset(), direct=True))
        for e in CLAUDE.events
    ]


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_hooks_without_a_shell_go_in_and_out_without_a_trace(text: str) -> None:
    after = put_in(text, CLAUDE, direct(enforce=True))
    assert {each.event for each in found(after, CLAUDE)} == {e.name for e in CLAUDE.events}
    [group] = jsonc.parse(after).value()["hooks"]["PreToolUse"][-1:]
    [hook] = group["hooks"]
    assert hook["command"] == "/home/you/.local/share/fleet/fleet-hook"
    assert hook["args"] == ["claude", "enforce-locks"]
    assert put_in(after, CLAUDE, direct(enforce=True)) == after
    assert take_out(after, CLAUDE, text) == text


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_hook_changes_between_a_shell_and_none_in_its_place(text: str) -> None:
    """Other words come too, and nothing is doubled."""
    through_shell = installed(text)
    after = put_in(through_shell, CLAUDE, direct())
    assert after == put_in(after, CLAUDE, direct())
    stops = [each for each in found(after, CLAUDE) if each.event == "Stop"]
    assert [each.command for each in stops] == ["'/home/you/.local/share/fleet/fleet-hook' claude"]
    more = put_in(after, CLAUDE, direct(enforce=True))
    assert "'fleet-hook' claude enforce-locks" in "".join(
        each.command.replace("/home/you/.local/share/fleet/", "") for each in found(more, CLAUDE)
    )
    assert jsonc.parse(installed(more)).value() == jsonc.parse(through_shell).value()
    assert take_out(after, CLAUDE, text) == text


def test_args_in_front_of_a_command_are_changed_too() -> None:
    hook = {"args": ["claude", "old"], "command": "/x/fleet/fleet-hook", "type": "command"}
    text = json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}})
    [now] = json.loads(put_in(text, CLAUDE, direct()))["hooks"]["Stop"][0]["hooks"]
    assert (now["args"], now["command"]) == (
        ["claude"], "/home/you/.local/share/fleet/fleet-hook",
    )  # fmt: skip
    [now] = json.loads(put_in(text, CLAUDE, wanted(CLAUDE)))["hooks"]["Stop"][0]["hooks"]
    assert "args" not in now


def test_antigravitys_events_stand_below_a_name_and_only_those_of_tools_in_groups() -> None:
    """As its reference has it: anything else makes it drop the whole file."""
    mine = {"mine": {"enabled": False, "Stop": [{"command": "guard"}]}}
    after = installed(json.dumps(mine), ANTIGRAVITY)
    written = json.loads(after)
    assert written.pop("mine") == mine["mine"]
    [(name, events)] = written.items()
    assert name == "fleetd"
    assert "PreToolUse" not in events
    [group] = events.pop("PostToolUse")
    assert sorted(group) == ["hooks", "matcher"]
    for [hook] in (group["hooks"], events["PreInvocation"], events["Stop"]):
        assert sorted(hook) == ["command", "timeout", "type"]
        assert (hook["type"], hook["timeout"]) == ("command", 5)
        assert hook["command"].endswith("2>/dev/null || echo {}")


def test_others_come_first_and_stay_whole() -> None:
    text = json.dumps({"hooks": {"PreToolUse": [OTHERS], "Elsewhere": [OTHERS]}}, indent=4)
    after = installed(text)
    entries = json.loads(after)["hooks"]["PreToolUse"]
    assert entries[0] == OTHERS
    assert "fleetctl/hook.py' claude" in entries[1]["hooks"][0]["command"]
    assert after.startswith(text[: text.index("]\n            }\n        ]") + 1])
    # Somebody adds one behind ours.
    added = append(after, jsonc.parse(after).items[0].items[0], {"hooks": []})
    left = take_out(added, CLAUDE, text)
    assert left is not None
    assert json.loads(left)["hooks"]["PreToolUse"] == [OTHERS, {"hooks": []}]


def test_a_hook_that_was_moved_into_the_group_of_another_is_found_and_taken_out() -> None:
    ours = CLAUDE.entry(wanted(CLAUDE)[0][1], CLAUDE.events[0])["hooks"][0]
    group = {"matcher": "x", "hooks": [OTHERS["hooks"][0], ours]}
    left = take_out(json.dumps({"hooks": {"Stop": [group]}}), CLAUDE, None)
    assert json.loads(left or "") == {"hooks": {"Stop": [OTHERS | {"matcher": "x"}]}}


def test_an_older_installation_is_replaced_in_place() -> None:
    old = Installation("/old/it's/python", "/old place/fleetctl/hook.py", "FLEET_SOCKET='/x' ")
    text = put_in('{"a": 1}', CODEX, [(e, old.command(CODEX, e)) for e in CODEX.events])
    after = installed(text, CODEX)
    assert [f.command for f in found(after, CODEX)] == [c for _e, c in wanted(CODEX)]
    assert len(jsonc.parse(after).value()["hooks"]["Stop"]) == 1


def test_what_people_set_on_our_hook_stays_when_its_command_changes() -> None:
    text = installed("").replace('"timeout": 5', '"timeout": 55')
    after = put_in(text, CLAUDE, wanted(CLAUDE, enforce=True))
    assert after.count('"timeout": 55') == text.count('"timeout": 55')
    assert after.count("enforce-locks") == 1
    assert after == text.replace("claude 2>", "claude enforce-locks 2>", 3).replace(
        "claude enforce-locks 2>", "claude 2>", 2
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3: expected a comma or '}', found '\"'"),
        ('{"a": tru}', "line 1, column 7: expected a value, found 't'"),
        ('{"a": 1', "line 1, column 8: expected a comma or '}', the file ends"),
        ("{a: 1}", "line 1, column 2: expected a name in double quotes or '}', found 'a'"),
        ('{"a" 1}', "line 1, column 6: expected a colon"),
        ('{"a": "x\n"}', "line 1, column 7: expected the end of this text"),
        ('{"a": "\\q"}', "line 1, column 7: a text with an escape"),
        ("{} {}", "line 1, column 4: expected the end of the file, found '{'"),
        ("/* never closed", "line 1, column 1: expected a value, found '/'"),
        ("[" * 200, "line 1, column 102: nested deeper than 100"),
        ("{,}", "line 1, column 2"),
        ("<<<<<<< HEAD\n{}", "line 1, column 1: expected a value, found '<'"),
    ],
)
def test_a_broken_text_is_refused_with_the_place(text: str, told: str) -> None:
    with pytest.raises(jsonc.Broken) as refused:
        installed(text)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "it holds no object but a list"),
        ("7", "it holds no object but 7"),
        ('{"hooks": []}', 'its "hooks" is no object but a list'),
        ('{"hooks": null}', 'its "hooks" is no object but null'),
        ('{"hooks": {"Stop": {}}}', 'its "hooks.Stop" is no list but an object'),
        ('{"hooks": {}, "hooks": {}}', 'it has more than one "hooks"'),
        ('{"hooks": {"Stop": [], "Stop": []}}', 'its "hooks" has more than one "Stop"'),
    ],
)
def test_a_text_of_another_shape_is_refused(text: str, told: str) -> None:
    with pytest.raises(UnusableSettings, match=told.replace(".", "[.]")):
        installed(text)


def test_a_version_that_is_unknown_is_refused_and_a_missing_one_is_added() -> None:
    with pytest.raises(UnusableSettings, match='its "version" is not 1'):
        installed('{"version": 2, "hooks": {}}', CURSOR)
    assert json.loads(installed('{"hooks": {}}', CURSOR))["version"] == 1


def test_others_may_be_of_any_shape() -> None:
    text = '{"hooks": {"Stop": [1, "x", {"hooks": 5}, {"hooks": [null, {"command": 3}]}], "My": 1}}'
    assert take_out(installed(text), CLAUDE, text) == text
    assert found(text, CLAUDE) == []


# Whatever JSON looks like, laid out in whatever way, with remarks in every gap.

GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // x\n", " /* y, ] */ ", "\r\n", "\n// z\n"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)


@st.composite
def laid_out(draw: st.DrawFn, value: Any) -> str:
    """Draw a text for a value, with gaps wherever JSON has room for them."""

    def gap() -> str:
        return draw(GAPS)

    if isinstance(value, dict):
        parts = [
            f"{gap()}{json.dumps(k)}{gap()}:{gap()}{draw(laid_out(v))}" for k, v in value.items()
        ]
        begin, end = "{}"
    elif isinstance(value, list):
        parts = [gap() + draw(laid_out(v)) for v in value]
        begin, end = "[]"
    else:
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    inside = "".join(f"{part}{gap()}," for part in parts)
    return begin + (inside if draw(st.booleans()) else inside.removesuffix(",")) + gap() + end


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
HOOKS = st.dictionaries(
    st.sampled_from(["Stop", "PreToolUse", "PostToolUse", "Elsewhere"]),
    st.lists(st.just(OTHERS) | VALUES, max_size=3),
    max_size=3,
)


@settings(deadline=None, max_examples=30)
@given(st.data(), VALUES)
def test_every_layout_is_read_as_what_it_means(data: st.DataObject, value: Any) -> None:
    text = data.draw(GAPS) + data.draw(laid_out(value)) + data.draw(GAPS)
    assert jsonc.parse(text).value() == value


@settings(deadline=None, max_examples=30)
@given(st.data(), st.lists(VALUES, min_size=1, max_size=3), VALUES, st.integers(0, 2))
def test_what_is_appended_can_be_removed_without_a_trace(
    data: st.DataObject, values: list[Any], value: Any, levels: int
) -> None:
    text = data.draw(laid_out(values))
    after = append(text, jsonc.parse(text), value, levels=levels)
    node = jsonc.parse(after)
    assert node.value() == [*values, value]
    assert remove(after, node, len(values)) == text


@settings(deadline=None, max_examples=30)
@given(st.data(), st.lists(VALUES, min_size=1, max_size=4))
def test_any_item_can_be_removed(data: st.DataObject, values: list[Any]) -> None:
    text = data.draw(laid_out(values))
    index = data.draw(st.integers(0, len(values) - 1))
    after = remove(text, jsonc.parse(text), index)
    assert jsonc.parse(after).value() == values[:index] + values[index + 1 :]


@settings(deadline=None, max_examples=10)
@given(st.data(), st.dictionaries(st.text(max_size=3), VALUES, max_size=3), HOOKS)
def test_any_settings_come_back_after_hooks_came_and_went(
    data: st.DataObject, others: dict[str, Any], hooks: dict[str, Any]
) -> None:
    text = data.draw(laid_out(others | {"hooks": hooks}))
    after = installed(text)
    assert put_in(after, CLAUDE, wanted(CLAUDE)) == after
    assert take_out(after, CLAUDE, text) == text
    # Also when the texts can no longer be compared, as after an edit, no meaning is lost.
    edited = append(after, jsonc.parse(after), 1, key="added since")
    left = jsonc.parse(take_out(edited, CLAUDE, text) or "").value()
    assert left == jsonc.parse(text).value() | {"added since": 1}
