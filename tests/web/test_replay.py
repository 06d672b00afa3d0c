"""The replay shows every view as it was."""

import re
import time
from pathlib import Path

from playwright.sync_api import Page, expect

from fleetctl.client import Fleet
from fleetd.protocol.timestamps import iso
from tests.web.conftest import Open
from tests.web.filled import fill
from tests.web.views import close_dialog, show


def rows(page: Page) -> dict[str, object]:
    """Return what Now shows: agents with their states, missions, locks, conflicts."""
    texts = "all => all.map(each => each.textContent)"
    return {
        "needs": page.locator(".need-head").evaluate_all(
            "all => all.map(each => each.querySelector('.need-who').textContent)"
        ),
        "agents": page.locator("#agents tbody tr").evaluate_all(
            "all => all.map(row => [row.querySelector('.agent').textContent,"
            " row.querySelector('.badge').textContent, row.querySelectorAll('td')[1].textContent])"
        ),
        "missions": page.locator("#missions .mission-line").evaluate_all(texts),
        "bars": page.locator(".progress-fill").evaluate_all(
            "all => all.map(each => each.style.inlineSize)"
        ),
        "locks": page.locator("#locks .lock .path").evaluate_all(texts),
        "conflicts": page.locator("#conflicts .conflict .path").evaluate_all(texts),
    }


def told(fleet: Fleet, time_: str) -> dict[str, list[str]]:
    """Return what the daemon says of a moment."""
    moment = fleet.call_raw("fleet.at", {"time": time_})
    return {
        "agents": sorted(each["agent_id"] for each in moment["agents"]),
        "missions": [each["title"] for each in moment["missions"]],
        "locks": [each["file"] for each in moment["locks"]],
        "conflicts": [each["file"] for each in moment["conflicts"]],
    }


def test_now_is_what_it_was_at_each_moment(open_page: Open, fleet: Fleet, project: Path) -> None:
    fill(fleet, project, "The first thing")
    fill(fleet, project, "The second thing", "bruno")
    events = fleet.call_raw("event.list", {"limit": 1000})["events"]
    page = open_page()
    for event in events[::7]:
        show(page, f"#/now?at={event['timestamp']}")
        shown, wanted = rows(page), told(fleet, event["timestamp"])
        agents = [each[0] for each in shown["agents"]]  # type: ignore[attr-defined]
        waiting = page.locator(".need-who .agent").all_inner_texts()
        assert sorted(agents + waiting) == wanted["agents"]
        links = page.locator("#missions .mission-name a")
        assert links.evaluate_all("all => all.map(a => a.textContent)") == wanted["missions"]
        assert shown["locks"] == wanted["locks"]
        assert shown["conflicts"] == wanted["conflicts"]


def test_the_present_moment_is_what_is_live(open_page: Open, fleet: Fleet, project: Path) -> None:
    fill(fleet, project, "A thing to do")
    page = open_page()
    live = rows(page)
    last = fleet.call_raw("event.list", {"newest": True, "limit": 1})["events"][0]
    show(page, f"#/now?at={last['timestamp']}")
    expect(page.locator("#as-at")).to_contain_text("as at")
    assert rows(page) == live


def test_a_mission_is_shown_as_it_was(open_page: Open, fleet: Fleet, project: Path) -> None:
    made = {"title": "Before", "project_dir": str(project), "sorties": [{"title": "Only one"}]}
    mission = fleet.call_raw("mission.create", made)["id"]
    fleet.call_raw("mission.start", {"mission_id": mission})
    before = fleet.call_raw("event.list", {"newest": True, "limit": 1})["events"][0]["timestamp"]
    # The next event has a later millisecond.
    while iso(round(time.time() * 1000)) <= before:
        pass
    [sortie] = fleet.call_raw("sortie.list", {"mission_id": mission})["sorties"]
    fleet.call_raw(
        "agent.register", {"agent_id": "ada", "role": "specialist", "mission_id": mission}
    )
    fleet.call_raw("sortie.start", {"sortie_id": sortie["id"], "agent_id": "ada"})
    fleet.call_raw("sortie.complete", {"sortie_id": sortie["id"]})
    page = open_page(f"#/mission/{mission}")
    state = page.locator("tr.sortie .badge")
    expect(state).to_have_text("completed")
    show(page, f"#/mission/{mission}?at={before}")
    expect(state).to_have_text("pending")
    # What is reached from here is of the same moment.
    assert f"at={before.replace(':', '%3A')}" in (
        page.get_by_role("link", name="Work").get_attribute("href") or ""
    )
    page.get_by_role("button", name="Live").click()
    expect(state).to_have_text("completed")
    expect(page).not_to_have_url(re.compile("at="))


def test_the_timeline_says_what_agents_were_then(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    made = {"title": "Before", "project_dir": str(project), "sorties": [{"title": "Only one"}]}
    mission = fleet.call_raw("mission.create", made)["id"]
    fleet.call_raw("mission.start", {"mission_id": mission})
    fleet.call_raw(
        "agent.register", {"agent_id": "ada", "role": "specialist", "mission_id": mission}
    )
    [sortie] = fleet.call_raw("sortie.list", {"mission_id": mission})["sorties"]
    fleet.call_raw("sortie.start", {"sortie_id": sortie["id"], "agent_id": "ada"})
    before = fleet.call_raw("event.list", {"newest": True, "limit": 1})["events"][0]["timestamp"]
    while iso(round(time.time() * 1000)) <= before:
        pass
    fleet.call_raw("mission.update", {"mission_id": mission, "title": "After"})
    fleet.call_raw("agent.deregister", {"agent_id": "ada"})
    page = open_page("#/timeline?span=600000")
    expect(page.locator(".row-sub")).to_have_text("gone")
    expect(page.locator(".group text")).to_have_text(re.compile("After"))
    show(page, f"#/timeline?span=600000&at={before}")
    expect(page.locator(".row-sub")).to_have_text("active")
    expect(page.locator(".group text")).to_have_text(re.compile("Before"))


def test_the_slider_goes_back_and_live_returns(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    fill(fleet, project, "A thing to do")
    page = open_page()
    page.keyboard.press("r")
    expect(page.locator("#slider")).to_be_focused()
    page.keyboard.press("[")
    expect(page.locator("#as-at")).to_contain_text("as at")
    expect(page.locator("#replay")).to_have_class("replay replaying")
    first = page.url
    page.keyboard.press("[")
    expect(page).not_to_have_url(first)
    # In a replay, nothing that happens now is shown.
    fleet.call_raw("agent.register", {"agent_id": "newcomer", "role": "specialist"})
    page.keyboard.press("1")
    expect(page.get_by_role("link", name="newcomer")).to_have_count(0)
    page.keyboard.press("l")
    expect(page.get_by_role("link", name="newcomer")).to_be_visible()
    page.locator("#slider").focus()
    page.keyboard.press("Home")
    expect(page.locator("#as-at")).to_contain_text("as at")
    page.keyboard.press("End")
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "true")


# Keeps which moments the page asks for, and holds the answers back.
SLOW = """() => {
    const plain = window.fetch;
    window.asked = { running: 0, most: 0, times: [] };
    const released = new Promise(done => (window.release = done));
    window.fetch = async (path, options) => {
        if (!path.startsWith("/api/fleet.at")) return plain(path, options);
        const params = new URLSearchParams(path.split("?")[1]).get("params");
        window.asked.times.push(JSON.parse(params).time);
        window.asked.most = Math.max(window.asked.most, ++window.asked.running);
        try {
            await released;
            return await plain(path, options);
        } finally {
            window.asked.running--;
        }
    };
}"""


def test_who_moves_the_slider_on_asks_for_one_moment_at_a_time(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    fill(fleet, project, "A thing to do")
    times = [each["timestamp"] for each in fleet.call_raw("event.list", {"limit": 1000})["events"]]
    times = sorted({*times})
    page = open_page()
    page.evaluate(SLOW)
    page.evaluate(
        """async times => {
            for (const time of times) {
                location.hash = `#/now?at=${time}`;
                await new Promise(done => requestAnimationFrame(done));
            }
            release();
        }""",
        times[-10:],
    )
    page.wait_for_function(
        "last => asked.running === 0 && asked.times.at(-1) === last", arg=times[-1]
    )
    asked = page.evaluate("asked")
    assert asked["most"] == 1
    assert asked["times"] == [times[-10], times[-1]]
    links = page.locator("#missions .mission-name a")
    expect(links).to_have_text(told(fleet, times[-1])["missions"])


def test_old_mail_and_checkpoints_are_shown_behind_many_newer_ones(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    made = {"title": "Long", "project_dir": str(project), "sorties": [{"title": "Only one"}]}
    mission = fleet.call_raw("mission.create", made)["id"]
    ada = {"agent_id": "ada", "role": "specialist", "mission_id": mission}
    fleet.call_raw("agent.register", ada)
    letter = {"from": "ada", "to": ["bob"], "mission_id": mission, "body": "Hello"}
    first = fleet.call_raw("message.send", {**letter, "subject": "The first one"})
    taken = fleet.call_raw("checkpoint.create", {"mission_id": mission})
    before = fleet.call_raw("event.list", {"newest": True, "limit": 1})["events"][0]["timestamp"]
    while iso(round(time.time() * 1000)) <= before:
        pass
    for number in range(200):
        fleet.call_raw("message.send", {**letter, "subject": f"Letter {number}"})
    fleet.call_raw("checkpoint.create", {"mission_id": mission})

    page = open_page(f"#/mission/{mission}?part=mail&at={before}")
    expect(page.locator(".note strong")).to_have_text([first["subject"]])
    show(page, f"#/mission/{mission}?part=checkpoints&at={before}")
    expect(page.locator("main tbody tr .sub").first).to_have_text(taken["id"])
    show(page, f"#/mission/{mission}?part=briefing&at={before}")
    expect(page.locator("main .hint").first).to_contain_text("From the last checkpoint before")
    show(page, f"#/agent/ada?part=briefing&at={before}")
    expect(page.locator("main .hint").first).to_contain_text("From the last checkpoint before")


def test_an_event_of_a_replay_has_nothing_later_around_it(
    open_page: Open, fleet: Fleet, project: Path
) -> None:
    fill(fleet, project, "A thing to do")
    events = fleet.call_raw("event.list", {"agent_id": "ada", "limit": 1000})["events"]
    middle = events[len(events) // 2]
    page = open_page(f"#/now?event={middle['seq']}")
    times = "all => all.map(each => each.getAttribute('datetime'))"
    around = page.locator("#dialog .around time")
    expect(around.first).to_be_visible()
    assert max(around.evaluate_all(times)) > middle["timestamp"]
    close_dialog(page)
    show(page, f"#/now?at={middle['timestamp']}&event={middle['seq']}")
    expect(around.first).to_be_visible()
    assert max(around.evaluate_all(times)) <= middle["timestamp"]


def test_a_moment_before_the_log_is_told(open_page: Open, fleet: Fleet) -> None:
    fleet.call_raw("agent.register", {"agent_id": "ada", "role": "specialist"})
    page = open_page("#/now")
    show(page, "#/now?at=2020-01-01T00:00:00.000Z")
    expect(page.locator("main")).to_contain_text("No agent was known at this moment")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("link", name="ada")).to_be_visible()
