"""``--agent`` and ``--since`` on the lists, and the spellings of options that changed."""

import json
import time

import pytest


def ids(result, field="id"):
    return [each[field] for each in result.json]


def test_missions_of_an_agent_are_its_own_and_those_of_its_sorties(done, run, daemon, monkeypatch):
    names = ("Present", "Sortie", "Titled", "Other")
    made = {name: done("mission", "create", name, "--sortie", "One").id("msn") for name in names}
    done("mission", "start", made["Present"])
    done("agent", "start", "alice", "--mission", made["Present"])
    done("sortie", "create", "Two", "--mission", made["Sortie"], "--assign-to", "alice")
    monkeypatch.setenv("FLEET_AGENT_ID", "alice")
    done("mission", "update", made["Titled"], "--title", "By alice")

    listed = ids(done("mission", "list", "--agent", "alice", "--json"))
    assert listed == [made["Titled"], made["Sortie"], made["Present"]]
    assert ids(done("mission", "list", "--agent", "alice", "--limit", "1", "--json")) == listed[:1]
    pending = done("mission", "list", "--agent", "alice", "--status", "pending", "--json")
    assert ids(pending) == listed[:2]
    assert done("mission", "list", "--agent", "nobody").out == "No missions found.\n"


def test_messages_of_an_agent_are_those_from_it_and_to_it(done, daemon):
    for sender, to in (("a", "b"), ("b", "c"), ("c", "a")):
        done("mail", "send", f"{sender} to {to}", "--from", sender, "--to", to)

    listed = done("mail", "list", "--agent", "a", "--json")
    assert ids(listed, "subject") == ["a to b", "c to a"]


def test_messages_of_a_time_are_listed_oldest_first(done, daemon):
    done("mail", "send", "Old", "--from", "a", "--to", "b")
    time.sleep(1.5)
    for subject in ("New", "Newer"):
        done("mail", "send", subject, "--from", "a", "--to", "b")

    recent = done("mail", "list", "--since", "1s", "--agent", "b", "--json")
    assert ids(recent, "subject") == ["New", "Newer"]
    assert ids(done("mail", "list", "--since", "1h", "--json"), "subject") == [
        "Old",
        "New",
        "Newer",
    ]


def test_checkpoints_of_an_agent_and_of_a_time(done, run, mission):
    mine = [done("checkpoint").id("chk") for _ in range(3)]
    request = json.dumps({"mission_id": mission, "created_by": "alice"})
    theirs = done("call", "checkpoint.create", request).json["id"]

    listed = done("checkpoint", "list", "--agent", "alice").out.splitlines()
    assert [line.split()[0] for line in listed[2:3]] == [theirs]
    assert listed[3:] == ["", "Total: 1 checkpoint"]
    newest = done("checkpoint", "list", "--agent", "cli", "--limit", "2", "--json")
    assert ids(newest) == mine[:0:-1]
    assert len(ids(done("checkpoints", "list", "--since", "1h", "--json"))) == 4
    time.sleep(1.1)
    assert done("checkpoint", "list", "--since", "1s").out == "No checkpoints found.\n"


def test_snapshots_of_an_agent_and_of_a_time(done, daemon):
    for step, agent in enumerate(("alice", "bob", "alice"), 1):
        run_of = ("--run", f"of-{agent}", "--agent", agent)
        done("snapshot", "record", *run_of, "--ordinal", str(step))

    listed = done("snapshot", "list", "--agent", "alice", "--json")
    assert ids(listed, "run_id") == ["of-alice"] * 2
    assert done("snapshot", "list", "--agent", "bob").out.endswith("\nTotal: 1 snapshot\n")
    time.sleep(1.1)
    assert done("snapshot", "list", "--agent", "bob", "--since", "1s", "--json").json == []


@pytest.mark.parametrize(
    "command",
    [("checkpoint", "list"), ("snapshot", "list"), ("mail", "list"), ("mission", "timeline")],
)
def test_an_age_is_checked_before_anybody_is_asked(run, home, command):
    refused = run(*command, "--since", "yesterday")

    assert refused.status == 2
    assert "argument --since" in refused.err
    assert "'yesterday'" in refused.err


def test_both_spellings_of_options_work_and_one_is_listed(done, run, mission):
    sortie = done("sortie", "create", "Three", "--assign-to", "alice").id("srt")
    done("sortie", "start", sortie)
    for option in ("--note", "--notes"):
        done("sortie", "progress", sortie, option, f"By {option}")
        assert f"Notes: By {option}\n" in done("sortie", "show", sortie).out
    for option in ("--agent", "--assigned-to"):
        assert ids(done("sortie", "list", option, "alice", "--json")) == [sortie]
    assert "--notes" not in done("sortie", "progress", "--help").out
    assert "--assigned-to" not in done("sortie", "list", "--help").out


def test_both_spellings_of_checkpoint_run_the_same_commands(done, mission):
    taken = done("checkpoint").id("chk")

    for command in (("list",), ("show", taken), ("list", "--json"), ("verify", "--all")):
        assert done("checkpoint", *command).out == done("checkpoints", *command).out
    assert "checkpoints " not in done("help", "--all").out.replace("checkpoints of", "")


def test_options_of_the_command_are_refused_before_one_below_it(run, home):
    refused = run("checkpoint", "--note", "Why", "list")

    assert refused.status == 2
    assert refused.err.startswith("Error: argument --note: write it after 'list'")
