"""``gustfront incidents …`` as an on-call engineer types it."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

from core.records import Event
from sql.store import Store
from tests.app.test_cli import Done, Gustfront, gustfront
from tests.incidents.make import T, incident

__all__ = ["gustfront"]
HOSTILE = "[red]boom[/red]\x1b[31m![x](http://evil.invalid/x.png)<script>"


@pytest.fixture
def run(gustfront: Gustfront, tmp_path: Path) -> Gustfront:
    """The command line on a database with an open incident ``aa11`` and an earlier one like it, ``ab22``."""
    with Store.open(f"sqlite:///{tmp_path / 'gustfront.db'}") as store:
        store.save_incident(incident())
        store.save_incident(incident("ab22", state="resolved", started_at=T - 86400, ended_at=T - 86000))
        store.log_incident("aa11", T + 60, "opened", "page", "detector")
        store.add_events([Event(T - 86100, "restart", "coder-0", pool="coder", replica="coder-0")])
    return gustfront


def fine(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


def test_acknowledging_is_one_short_command_and_says_who_has_it(run: Gustfront) -> None:
    done = fine(run("incidents", "ack", "aa"))
    assert f"aa11 (KV eviction storm on coder) is acknowledged by {getpass.getuser()}" in done.err
    again = run("incidents", "ack", "aa", "--by", "ole")
    assert again.code == 2
    assert f"{getpass.getuser()} acknowledged it on" in again.err
    assert "acknowledged by" in fine(run("incidents")).out
    fine(run("incidents", "unack", "aa"))
    assert run("incidents", "unack", "aa").code == 2


def test_an_act_with_json_gives_the_incident_with_its_handling_and_log_and_nothing_else(
    run: Gustfront,
) -> None:
    told = json.loads(fine(run("incidents", "assign", "aa11", "inference", "--by", "mara", "--json")).out)
    assert told["id"] == "aa11"
    assert told["handling"]["assignee"] == "inference"
    assert told["handling"]["told"] is True
    assert [(e["action"], e["who"], e["data"]) for e in told["log"]] == [
        ("opened", "detector", {}),
        ("assigned", "mara", {"to": "inference"}),
    ]


def test_the_list_in_json_says_of_each_how_it_stands(run: Gustfront) -> None:
    fine(run("incidents", "snooze", "aa11", "--for", "2h", "--by", "mara"))
    listed = json.loads(fine(run("incidents", "--json")).out)
    assert [i["id"] for i in listed] == ["aa11", "ab22"]
    h = listed[0]["handling"]
    assert (h["told"], h["not_told_by"]) == (False, "snoozed")
    fine(run("incidents", "wake", "aa11"))
    assert json.loads(fine(run("incidents", "--json")).out)[0]["handling"]["told"]


def test_a_silence_for_an_incident_is_made_listed_and_taken_back(run: Gustfront) -> None:
    made = json.loads(
        fine(
            run(
                "incidents", "silence", "--incident", "aa11", "--for", "2h", "--reason", "load test", "--json"
            )
        ).out
    )
    assert made["matchers"] == 'kind="kv_eviction_storm",pool="coder"'
    assert made["state"] == "active"
    listed = json.loads(fine(run("incidents", "silences", "--json")).out)
    assert [s["id"] for s in listed["silences"]] == [made["id"]]
    assert "told" in fine(run("incidents", "show", "aa11")).out
    assert "no: silenced by" in fine(run("incidents", "show", "aa11")).out
    fine(run("incidents", "unsilence", made["id"][:6]))
    assert json.loads(fine(run("incidents", "silences", "--json")).out) == {"silences": [], "mutes": []}
    assert json.loads(fine(run("incidents", "silences", "--all", "--json")).out)["silences"][0][
        "withdrawn_by"
    ]


def test_a_mute_window_is_made_listed_and_taken_back(run: Gustfront) -> None:
    words = ["--days", "fri,sat", "--start", "22:00", "--end", "06:00", "--zone", "Europe/Berlin"]
    made = json.loads(
        fine(run("incidents", "mute", 'pool="coder"', *words, "--reason", "batch runs", "--json")).out
    )
    assert (made["days"], made["zone"]) == (["fri", "sat"], "Europe/Berlin")
    assert "fri, sat 22:00–06:00 Europe/Berlin" in fine(run("incidents", "silences")).out
    fine(run("incidents", "unmute", made["id"]))
    assert fine(run("incidents", "silences")).out.strip() == "No silence and no mute window."


WRONG = {
    "no such id": (["ack", "zz"], "no such incident"),
    "two ids": (["ack", "a"], "aa11, ab22"),
    "broken expression": (["silence", 'pool=~"co("', "--for", "1h", "--reason", "r"], "pool"),
    "unknown label": (["silence", 'pol="coder"', "--for", "1h", "--reason", "r"], "pol"),
    "no reason": (["silence", 'pool="coder"', "--for", "1h"], "reason"),
    "no end": (["silence", 'pool="coder"', "--reason", "r"], "--for"),
    "no matchers": (["silence", "--for", "1h", "--reason", "r"], "matchers"),
    "a duration without unit": (["snooze", "aa11", "--for", "2"], "--for"),
    "a time zone on Mars": (
        ["mute", 'pool="x"', "--start", "01:00", "--end", "02:00", "--zone", "Mars", "--reason", "r"],
        "zone",
    ),
    "no such day": (
        ["mute", 'pool="x"', "--days", "noday", "--start", "01:00", "--end", "02:00", "--reason", "r"],
        "days",
    ),
    "no such label": (["label", "aa11", "fine"], "cause_right"),
    "no such kind": (["label", "aa11", "cause_wrong", "--kind", "gremlins"], "gremlins"),
    "no silence": (["unsilence", "x1"], "no such silence"),
    "reopening what is open": (["reopen", "aa11"], "it is open"),
    "into itself": (["merge", "aa11", "aa11"], "part of it"),
    "an empty note": (["note", "aa11", " "], "empty"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_is_wrong_is_named_and_nothing_is_written(name: str, run: Gustfront, tmp_path: Path) -> None:
    words, named = WRONG[name]
    done = run("incidents", *words)
    assert done.code == 2, done.err
    assert named in done.err
    with Store.open(f"sqlite:///{tmp_path / 'gustfront.db'}") as store:
        assert [e.action for e in store.incident_log("aa11")] == ["opened"]
        assert store.silences() == []
        assert store.mutes() == []


def test_merging_splitting_reopening_and_labelling(run: Gustfront) -> None:
    fine(run("incidents", "reopen", "ab22", "--reason", "still slow"))
    told = json.loads(fine(run("incidents", "merge", "ab22", "aa11", "--json")).out)
    assert (told["id"], told["handling"]["merged"]) == ("aa11", ["ab22"])
    assert (
        json.loads(fine(run("incidents", "show", "ab22", "--json")).out)["handling"]["merged_into"] == "aa11"
    )
    fine(run("incidents", "split", "ab22"))
    fine(run("incidents", "resolve", "ab22"))
    fine(run("incidents", "label", "ab22", "false-alarm"))
    assert (
        json.loads(fine(run("incidents", "show", "ab22", "--json")).out)["handling"]["label"] == "false_alarm"
    )
    actions = [e["action"] for e in json.loads(fine(run("incidents", "log", "ab22", "--json")).out)]
    assert actions == ["reopened_by_hand", "merged", "split", "resolved_by_hand", "false_alarm"]


def test_similar_incidents_say_in_what_they_are_alike_and_what_ended_them(run: Gustfront) -> None:
    (found,) = json.loads(fine(run("incidents", "similar", "aa11", "--json")).out)
    assert found["id"] == "ab22"
    assert found["why"] == [
        "same kind",
        "same pool coder",
        "same replicas coder-0, coder-1",
        "same class coding-agent",
    ]
    assert found["ended_by"].startswith("restart coder-0 at ")
    fine(run("incidents", "note", "ab22", "lowered admission to 40"))
    assert "lowered admission to 40" in fine(run("incidents", "similar", "aa11")).out


def test_a_post_mortem_is_written_into_a_folder_that_need_not_exist(run: Gustfront, tmp_path: Path) -> None:
    out = tmp_path / "new" / "pm"
    told = json.loads(fine(run("incidents", "postmortem", "aa11", "--out", str(out), "--json")).out)
    assert told["files"] == [str(out / "postmortem.md")]
    assert "KV eviction storm" in (out / "postmortem.md").read_text()
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run("incidents", "postmortem", "aa11", "--out", str(blocked))
    assert done.code == 2
    assert "is a file" in done.err


def test_what_strangers_wrote_reaches_the_terminal_as_text(run: Gustfront, tmp_path: Path) -> None:
    fine(run("incidents", "note", "aa11", HOSTILE, "--by", HOSTILE))
    for words in (["log", "aa11"], ["show", "aa11"]):
        out = fine(run("incidents", *words)).out
        assert "\x1b" not in out
        assert "[red]boom" in out


def test_a_back_test_compares_itself_with_labels(run: Gustfront) -> None:
    fine(run("incidents", "label", "aa11", "cause_right"))
    words = ["backtest", "--start", str(T - 60), "--end", str(T + 60), "--labels"]
    told = json.loads(fine(run(*words, "--json")).out)
    assert told["incidents"] == []
    assert (told["labels"]["labelled"], told["labels"]["missed"]) == (1, 1)
    assert told["labels"]["precision"]["share"] is None
    assert "real ones missed: 1" in fine(run(*words)).out
