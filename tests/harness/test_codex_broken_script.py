"""A script of Codex that breaks off: what it planned before that is not taken back by a look."""

import json
from typing import Any

from fleetd.harness.codex import adapter
from fleetd.harness.report import PlanItem, Planned

BROKE_OFF = [{"type": "input_text", "text": "Script failed\nWall time 0.3 seconds\nOutput:\n"}]


def rollout(*payloads: dict[str, Any]) -> str:
    return "".join(
        json.dumps({"type": "response_item", "payload": payload}) + "\n" for payload in payloads
    )


def planning(call_id: str, script: str) -> dict[str, Any]:
    return {"type": "custom_tool_call", "name": "exec", "call_id": call_id, "input": script}


def output(call_id: str, said: Any) -> dict[str, Any]:
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": said}


FIRST = planning("call_1", 'await tools.update_plan({plan: [{step: "a", status: "pending"}]})')
SECOND = planning(
    "call_2", 'await tools.update_plan({plan: [{step: "b", status: "pending"}]}); nonsense()'
)
DONE = output("call_1", "Script completed\nWall time 0.3 seconds\nOutput:\n")


def test_neither_the_plan_of_a_script_that_broke_off_nor_the_one_before_is_told() -> None:
    assert adapter.look_back(rollout(FIRST, DONE, SECOND, output("call_2", BROKE_OFF))) == ()


def test_the_plan_that_comes_after_it_is() -> None:
    third = {**FIRST, "call_id": "call_3"}
    told = adapter.look_back(rollout(FIRST, DONE, SECOND, output("call_2", BROKE_OFF), third))
    assert told == (Planned((PlanItem("a", "pending"),), whole=True),)
