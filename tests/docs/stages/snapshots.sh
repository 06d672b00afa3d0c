# A session of Claude Code in this directory: a plan of three steps, two commands, one of which failed.
set -eu
fleetctl daemon start
tell() {
    printf '{"session_id": "777e68b4-1ad1-4f6c-9d81-64d0cae95a84", "cwd": "%s", "transcript_path": "%s", %s}' \
        "$PWD" "$HOME/.claude/projects/p/777e68b4.jsonl" "$1" | fleetctl hook claude
}
tell '"hook_event_name": "SessionStart", "source": "startup"'
tell '"hook_event_name": "UserPromptSubmit", "prompt": "Add a login form"'
tell '"hook_event_name": "PostToolUse", "tool_name": "TodoWrite", "tool_use_id": "t1", "tool_response": {},
    "tool_input": {"todos": [
        {"content": "Write the form", "status": "completed", "activeForm": "Writing the form"},
        {"content": "Validate the form", "status": "in_progress", "activeForm": "Validating"},
        {"content": "Write the docs", "status": "pending", "activeForm": "Writing the docs"}]}'
tell '"hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_use_id": "t3", "duration_ms": 4180,
    "tool_input": {"command": "pytest -q"}, "error": "Exit code 1\n2 failed, 38 passed"'
sleep 3.1 # what comes sooner joins the snapshot of the failure
tell '"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "t2", "duration_ms": 310,
    "tool_input": {"command": "ruff check ."}, "tool_response": {"stdout": "", "stderr": ""}'
