"""The requests of the conversation from which the reference is generated, step by step.

A later step can use a value of a reply by its name in braces.
"""

from collections.abc import Callable
from typing import Any

# name of a kept value -> its location in the reply
Keep = dict[str, Callable[[dict[str, Any]], Any]]
Step = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], Keep]
RUN = "777e68b4-1ad1-4f6c-9d81-64d0cae95a84"


def _id(answer: dict[str, Any]) -> Any:
    return answer["id"]


STEPS: tuple[Step, ...] = (
    ("system.hello", {"client": "a tool of mine", "protocol": 1}),
    (
        "mission.create",
        {
            "title": "Add login",
            "project_dir": "{project}",
            "sorties": [{"title": "Write the form", "files": ["src/form.py"]}],
        },
        {"mission": _id},
    ),
    ("mission.start", {"mission_id": "{mission}"}),
    ("mission.update", {"mission_id": "{mission}", "priority": "high"}),
    (
        "sortie.create",
        {"mission_id": "{mission}", "title": "Write tests", "assigned_to": "bob"},
        {"tests": _id},
    ),
    ("sortie.list", {"mission_id": "{mission}"}, {"form": lambda a: a["sorties"][0]["id"]}),
    ("sortie.update", {"sortie_id": "{tests}", "depends_on": ["{form}"]}),
    (
        "agent.register",
        {"agent_id": "alice", "role": "specialist", "mission_id": "{mission}", "cwd": "{project}"},
    ),
    ("agent.heartbeat", {"agent_id": "alice"}),
    ("agent.current", {"agent_id": "alice"}),
    (
        "agent.note",
        {
            "agent_id": "alice",
            "last_action": "Drew the form",
            "next_steps": ["Validate the form"],
        },
    ),
    ("agent.get", {"agent_id": "alice"}),
    ("agent.list", {"mission_id": "{mission}"}),
    ("attention.list", {}),
    ("session.list", {}),
    ("usage.budget", {"mission_id": "{mission}", "tokens": 2_000_000}),
    ("usage.budgets", {}),
    ("usage.report", {"by": "mission", "mission_id": "{mission}"}),
    ("sortie.assign", {"sortie_id": "{form}", "agent_id": "alice"}),
    (
        "sortie.start",
        {"sortie_id": "{form}", "agent_id": "alice", "idempotency_key": "start-form-1"},
    ),
    ("sortie.progress", {"sortie_id": "{form}", "percent": 40, "notes": "Fields are there"}),
    ("sortie.block", {"sortie_id": "{form}", "reason": "The design is not decided"}),
    ("sortie.unblock", {"sortie_id": "{form}"}),
    ("sortie.get", {"sortie_id": "{form}"}),
    (
        "lock.acquire",
        {"file": "src/form.py", "agent_id": "alice", "cwd": "{project}", "wait_ms": 5000},
        {"lock": _id, "token": lambda a: a["fencing_token"]},
    ),
    ("lock.renew", {"lock_id": "{lock}", "agent_id": "alice"}),
    ("lock.check", {"file": "{project}/src/form.py", "fencing_token": 1}),
    ("lock.list", {"held_by": "alice"}),
    ("agent.register", {"agent_id": "bob", "role": "specialist", "mission_id": "{mission}"}),
    ("lock.acquire", {"file": "src/form.py", "agent_id": "bob", "cwd": "{project}"}),
    (
        "message.send",
        {"from": "bob", "to": ["alice"], "subject": "Which fields?", "mission_id": "{mission}"},
        {"letter": _id},
    ),
    ("message.list", {"pending": True}),
    ("message.get", {"message_id": "{letter}"}),
    ("message.inbox", {"agent_id": "alice"}),
    ("message.ack", {"message_id": "{letter}", "agent_id": "alice"}),
    (
        "message.send",
        {"from": "alice", "to": ["bob"], "subject": "Name and e-mail"},
        {"second": _id},
    ),
    ("message.inbox", {"agent_id": "bob"}),
    ("message.requeue", {"message_id": "{second}"}),
    (
        "note.add",
        {
            "kind": "decision",
            "text": "The form validates on the server",
            "because": "Clients differ",
            "path": "src/form.py",
            "mission_id": "{mission}",
            "agent_id": "alice",
        },
        {"note": _id},
    ),
    ("note.pin", {"note_id": "{note}"}),
    ("note.list", {"mission_id": "{mission}"}),
    ("note.get", {"note_id": "{note}"}),
    ("note.withdraw", {"note_id": "{note}", "reason": "The client validates too"}),
    (
        "event.append",
        {
            "type": "file_modified",
            "mission_id": "{mission}",
            "agent_id": "alice",
            "data": {"file": "{project}/src/form.py"},
        },
    ),
    ("event.list", {"mission_id": "{mission}", "limit": 2}),
    ("search.query", {"query": "form", "limit": 2}),
    (
        "event.append",
        {"type": "file_modified", "agent_id": "bob", "data": {"file": "{project}/src/form.py"}},
    ),
    ("attention.conflicts", {}),
    ("commit.check", {"worktree": "{project}", "files": ["src/form.py"], "agent_id": "alice"}),
    (
        "event.subscribe",
        {"since": 19, "types": ["sortie_completed"]},
        {"subscription": lambda a: a["subscription_id"]},
    ),
    ("event.unsubscribe", {"subscription_id": "{subscription}"}),
    ("cursor.advance", {"consumer": "my-tool", "stream": "fleet", "position": 12}),
    ("cursor.get", {"consumer": "my-tool", "stream": "fleet"}),
    (
        "checkpoint.create",
        {"mission_id": "{mission}", "trigger_details": "Before the refactoring"},
        {"checkpoint": _id},
    ),
    ("checkpoint.get", {"checkpoint_id": "{checkpoint}"}),
    ("checkpoint.latest", {"mission_id": "{mission}"}),
    ("sortie.complete", {"sortie_id": "{form}", "result": "The form is there"}),
    ("checkpoint.compare", {"before": "{checkpoint}"}),
    ("checkpoint.list", {"mission_id": "{mission}", "limit": 1}),
    ("checkpoint.verify", {"checkpoint_id": "{checkpoint}"}),
    ("checkpoint.pull", {"mission_id": "{mission}"}),
    (
        "error.report",
        {"agent_id": "bob", "kind": "tool_failure", "name": "pytest", "message": "2 failed"},
        {"wrong": lambda a: a["checkpoint_id"]},
    ),
    # Waits for its file, and so for the previous one: that fixes the order of events.
    ("checkpoint.create", {"mission_id": "{mission}"}),
    ("checkpoint.delete", {"checkpoint_id": "{wrong}"}),
    ("checkpoint.prune", {"keep_per_mission": 1, "older_than_days": 0, "dry_run": True}),
    (
        "snapshot.record",
        {
            "run_id": RUN,
            "step_state": {"plan_path": "PLAN.md", "step_ordinal": 2, "step_status": "in_progress"},
            "command_outcomes": [{"kind": "shell", "name": "make test", "result": "PASS"}],
        },
        {"snapshot": lambda a: a["snapshot_id"]},
    ),
    ("snapshot.latest", {"run_id": RUN}),
    ("snapshot.get", {"snapshot_id": "{snapshot}"}),
    ("snapshot.list", {"run_id": RUN}),
    ("snapshot.verify", {"run_id": RUN}),
    ("snapshot.prune", {"dry_run": True}),
    ("recovery.detect", {"threshold_ms": 0}),
    ("recovery.restore", {"mission_id": "{mission}", "agent_id": "alice"}),
    ("recovery.context", {"agent_id": "alice", "max_chars": 600}),
    ("recovery.list", {"mission_id": "{mission}"}),
    (
        "handoff.begin",
        {"agent_id": "alice", "to": "codex", "successor_id": "codex-1"},
        {"handoff": lambda a: a["handoff"]["id"]},
    ),
    ("handoff.get", {"handoff_id": "{handoff}"}),
    ("handoff.cancel", {"handoff_id": "{handoff}"}),
    ("handoff.ask", {"agent_id": "alice", "to": "gemini"}),
    ("stats.recovery", {}),
    ("report.get", {"mission_id": "{mission}"}),
    ("lock.list", {}, {"held": lambda a: a["locks"][0]["id"]}),
    (
        "lock.force_release",
        {"lock_id": "{held}", "agent_id": "bob", "reason": "alice is away"},
    ),
    (
        "lock.acquire",
        {"file": "src/form.py", "agent_id": "alice", "cwd": "{project}"},
        {"third": _id},
    ),
    ("lock.release", {"lock_id": "{third}", "agent_id": "alice"}),
    ("sortie.fail", {"sortie_id": "{tests}", "reason": "Nobody has the time"}),
    (
        "sortie.create",
        {"mission_id": "{mission}", "title": "Write the docs"},
        {"docs": _id},
    ),
    ("sortie.remove", {"sortie_id": "{docs}"}),
    (
        "hook.deliver",
        {
            "delivery_id": "0f8c2f1e5b7d4a63",
            "harness": "claude",
            "payload": '{{"hook_event_name": "SessionStart", "session_id": "5e1f"}}',
        },
    ),
    ("hook.status", {}),
    ("agent.deregister", {"agent_id": "bob", "reason": "Done for today"}),
    ("mission.get", {"mission_id": "{mission}"}),
    ("mission.at", {"mission_id": "{mission}", "seq": 12}),
    ("fleet.at", {"seq": 12}),
    (
        "timeline.get",
        {"since": "2020-01-01T00:00:00.000Z", "until": "2040-01-01T00:00:00.000Z", "width": 10},
    ),
    ("mission.list", {"status": "in_progress"}),
    ("mission.current", {"cwd": "{project}"}),
    ("mission.select", {"purpose": "recovery", "cwd": "{project}"}),
    ("mission.complete", {"mission_id": "{mission}"}),
    ("mission.create", {"title": "Try another colour"}, {"other": _id}),
    ("mission.cancel", {"mission_id": "{other}", "reason": "Blue it is"}),
    ("mission.delete", {"mission_id": "{other}"}),
    ("mission.create", {"title": "Port it to paper"}, {"third_mission": _id}),
    ("mission.start", {"mission_id": "{third_mission}"}),
    ("mission.fail", {"mission_id": "{third_mission}", "reason": "Paper does not run"}),
    ("system.status", {}),
    ("system.health", {}),
    ("system.config", {}),
    ("system.doctor", {}),
    ("system.backup", {"path": "{home}/backup.db"}),
    ("system.forget", {"project_dir": "{project}", "dry_run": True}),
    ("system.metrics", {}),
    ("rpc.discover", {}),
    ("machine.forget", {"machine_id": "0f3a5c7e9b1d2468"}),
)
