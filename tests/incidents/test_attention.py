"""Whether somebody is told of an incident, and who: decided without a database."""

from __future__ import annotations

from typing import Any

import pytest

from core.attention import extent, notifiable, worse
from core.config_teams import TeamConfig
from core.lifecycle import Handling, LogEntry, Snooze, fold
from core.silences import MuteWindow, Silence
from core.teams import due_contacts, owner_of, teams_of
from tests.incidents.make import T, incident


def log(*acts: str, **data: object) -> list[LogEntry]:
    return [LogEntry("aa11", n, T + n, a, "", "mara", data) for n, a in enumerate(acts, 1)]


def test_somebody_is_told_unless_there_is_a_reason() -> None:
    assert notifiable(incident(), T).notify
    assert notifiable(incident(), T, handling=fold(log("acknowledged"))).notify


def test_the_decision_names_the_silence_its_author_and_its_end() -> None:
    s = Silence('pool="coder"', T, T + 600, "mara", "load test", id="s1")
    found = notifiable(incident(), T + 1, silences=[s])
    assert (found.notify, found.rule, found.until, found.by) == (False, "silenced", T + 600, "s1")
    assert "mara" in found.why
    assert "load test" in found.why
    assert notifiable(incident(), T + 600, silences=[s]).notify
    assert notifiable(incident(pools=("chat",)), T + 1, silences=[s]).notify


def test_a_mute_window_says_until_when() -> None:
    m = MuteWindow(
        'kind="kv_eviction_storm"', ("mon",), "00:00", "24:00", "UTC", "ole", "weekly batch", id="m1"
    )
    monday = T + (7 - int(T // 86400 + 3) % 7) * 86400 // 1
    monday = monday // 86400 * 86400
    found = notifiable(incident(), monday + 3600, mutes=[m])
    assert (found.rule, found.until, found.by) == ("muted", monday + 86400, "m1")
    assert notifiable(incident(), monday + 86400, mutes=[m]).notify


def test_a_part_is_not_told_of_until_its_whole_is_over() -> None:
    h = Handling(merged_into="ab22")
    whole = incident("ab22")
    assert notifiable(incident(), T, handling=h, into=whole).rule == "merged"
    over = incident("ab22", state="resolved", ended_at=T)
    assert notifiable(incident(), T, handling=h, into=over).notify
    gone = incident(state="resolved", ended_at=T)
    assert not notifiable(gone, T, handling=h, into=over).notify


WORSE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "severity": ({"severity": "ticket"}, {}),
    "bites": ({"state": "announced"}, {}),
    "class": ({}, {"classes": ("coding-agent", "chat")}),
    "pool": ({}, {"pools": ("coder", "chat")}),
    "replicas": ({}, {"replicas": ("coder-0", "coder-1", "coder-2")}),
    "late": ({}, {"detail": {"harm": {"share_late": 0.2}}}),
    "lost": ({"detail": {"harm": {"replicas_lost": 1}}}, {"detail": {"harm": {"replicas_lost": 2}}}),
}


@pytest.mark.parametrize("name", sorted(WORSE))
def test_a_snooze_ends_when_it_gets_worse_in_any_way(name: str) -> None:
    then, now = WORSE[name]
    h = Handling(snooze=Snooze("mara", T, extent(incident(**then))))
    assert notifiable(incident(**then), T + 1, handling=h).rule == "snoozed"
    found = notifiable(incident(**now), T + 1, handling=h)
    assert found.notify
    assert "worse than when mara snoozed it" in found.why


def test_more_of_the_same_is_not_worse() -> None:
    than = extent(incident(replicas=tuple(f"r{i}" for i in range(20))))
    grown = incident(
        replicas=tuple(f"r{i}" for i in range(22)),
        detail={"harm": {"requests_late": 9000, "requests": 90000, "share_late": 0.1}},
    )
    assert worse(than, grown) == ""
    assert worse(extent(incident()), incident(severity="ticket", replicas=("coder-0",), classes=())) == ""


def test_a_snooze_for_a_time_ends_then() -> None:
    h = Handling(snooze=Snooze("mara", T, extent(incident()), until=T + 60))
    assert [notifiable(incident(), t, handling=h).notify for t in (T + 59, T + 60)] == [False, True]


def test_an_acknowledgement_ends_with_the_incident_and_a_relapse_needs_another() -> None:
    assert fold(log("opened", "acknowledged")).acknowledged
    assert not fold(log("opened", "acknowledged", "resolved")).acknowledged
    assert not fold(log("opened", "acknowledged", "resolved", "reopened")).acknowledged
    assert fold(log("opened", "acknowledged", "resolved", "acknowledged")).acknowledged
    assert not fold(log("opened", "acknowledged", "unacknowledged")).acknowledged


def test_a_snooze_outlives_a_relapse_and_an_unknown_action_changes_nothing() -> None:
    assert fold(log("snoozed", "resolved", "reopened")).snooze is not None
    assert fold(log("snoozed", "woken")).snooze is None
    assert fold(log("from_another_release")) == fold([])


def test_the_last_label_counts() -> None:
    assert fold(log("cause_wrong", "cause_right")).label == "cause_right"
    assert fold(log("false_alarm", "unlabelled")).label == ""


TEAMS = teams_of(
    TeamConfig.model_validate(t)
    for t in (
        {
            "name": "inference",
            "match": ['pool=~"coder.*",severity="page"'],
            "contacts": ["a", "b", "c"],
            "escalate_after": "10m",
        },
        {"name": "chat", "match": ['class="chat"', 'pool="chat"']},
    )
)


def test_the_first_team_that_matches_one_of_its_pools_owns_an_incident() -> None:
    def name(**changes: Any) -> str | None:
        team = owner_of(incident(**changes), TEAMS)
        return team.name if team else None

    assert name() == "inference"
    assert name(severity="ticket") is None
    assert name(pools=("x", "coder-2")) == "inference"
    assert name(pools=(), classes=("chat",)) == "chat"


def test_the_next_contact_is_told_for_every_stretch_without_an_acknowledgement() -> None:
    team = TEAMS[0]
    open_ = Handling()
    assert [due_contacts(team, T, open_, T + s) for s in (0, 599, 600, 1200, 99999)] == [
        ("a",),
        ("a",),
        ("a", "b"),
        ("a", "b", "c"),
        ("a", "b", "c"),
    ]
    seen = Handling(acknowledged_at=T + 700, acknowledged_by="mara")
    assert due_contacts(team, T, seen, T + 9999) == ("a", "b")
    taken_back = Handling(unacknowledged_at=T + 5000)
    assert due_contacts(team, T, taken_back, T + 5599) == ("a",)
    assert due_contacts(team, T, taken_back, T + 5600) == ("a", "b")
    assert due_contacts(TEAMS[1], T, open_, T + 9999) == ()
