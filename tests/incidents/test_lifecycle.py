"""What people do to incidents, on both databases: it survives detectors, it is written down, and only responders may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from app.services import labelling, lifecycle, merging, silencing
from app.services.attention import load
from app.services.lifecycle import Conflict, NotFound
from app.services.people import Forbidden, Principal
from core.config import Config
from core.errors import ConfigError, InputError
from sql.store import Store
from tests.incidents.make import T, incident

ACTS: dict[str, Callable[[Store, Principal], Any]] = {
    "acknowledge": lambda s, p: lifecycle.acknowledge(s, "aa11", p),
    "unacknowledge": lambda s, p: lifecycle.unacknowledge(s, "aa11", p),
    "assign": lambda s, p: lifecycle.assign(s, "aa11", p, to="ole"),
    "note": lambda s, p: lifecycle.note(s, "aa11", p, text="hm"),
    "snooze": lambda s, p: lifecycle.snooze(s, "aa11", p),
    "wake": lambda s, p: lifecycle.wake(s, "aa11", p),
    "reopen": lambda s, p: lifecycle.reopen(s, "ab22", p),
    "resolve": lambda s, p: lifecycle.resolve(s, "ab22", p),
    "accept": lambda s, p: lifecycle.accept_new_normal(s, "aa11", p),
    "merge": lambda s, p: merging.merge(s, "aa11", "ab22", p),
    "split": lambda s, p: merging.split(s, "aa11", p),
    "label": lambda s, p: labelling.label(s, "aa11", p, label="cause_right"),
    "silence": lambda s, p: silencing.silence(s, 'pool="x"', p, reason="r", ends_at=9e9),
    "unsilence": lambda s, p: silencing.unsilence(s, "x", p),
    "mute": lambda s, p: silencing.mute(
        s, 'pool="x"', p, days=["mon"], start="01:00", end="02:00", zone="UTC", reason="r"
    ),
    "unmute": lambda s, p: silencing.unmute(s, "x", p),
}


@pytest.mark.parametrize("name", sorted(ACTS))
def test_a_viewer_may_do_nothing_and_leaves_no_trace(known: Store, looker: Principal, name: str) -> None:
    with pytest.raises(Forbidden, match="responder"):
        ACTS[name](known, looker)
    assert known.incident_logs(["aa11", "ab22"]) == {}
    assert known.silences() == []
    assert known.mutes() == []
    assert known.events() == []


def test_every_act_is_in_the_log_with_who_and_when(known: Store, mara: Principal) -> None:
    lifecycle.acknowledge(known, "aa11", mara, at=T + 100)
    lifecycle.assign(known, "aa11", mara, to="ole", at=T + 110)
    lifecycle.note(known, "aa11", mara, text=" drained coder-0 ", at=T + 120)
    lifecycle.snooze(known, "aa11", mara, reason="waiting", seconds=60, at=T + 130)
    labelling.label(known, "aa11", mara, label="cause-wrong", kind="wedged", at=T + 140)
    lifecycle.unacknowledge(known, "aa11", mara, at=T + 150)
    got = [(e.seq, e.ts - T, e.action, e.text, e.who) for e in known.incident_log("aa11")]
    assert got == [
        (1, 100, "acknowledged", "", "mara"),
        (2, 110, "assigned", "to ole", "mara"),
        (3, 120, "note", "drained coder-0", "mara"),
        (4, 130, "snoozed", "waiting", "mara"),
        (5, 140, "cause_wrong", "", "mara"),
        (6, 150, "unacknowledged", "", "mara"),
    ]
    h = known.handlings(["aa11"])["aa11"]
    assert (h.assignee, h.label, h.true_kind, h.acknowledged) == ("ole", "cause_wrong", "wedged", False)
    assert h.snooze is not None
    assert h.snooze.until == T + 190


def test_what_people_said_survives_every_update_of_a_detector(known: Store, mara: Principal) -> None:
    lifecycle.acknowledge(known, "aa11", mara)
    lifecycle.assign(known, "aa11", mara, to="ole")
    for n in range(3):
        known.save_incident(incident(title=f"worse {n}", updated_at=T + n, severity="ticket"))
        known.log_incident("aa11", T + n, "diagnosed", "now seen as something", "detector")
    h = known.handlings(["aa11"])["aa11"]
    assert (h.acknowledged_by, h.assignee) == ("mara", "ole")
    known.log_incident("aa11", T + 10, "resolved", "", "detector")
    assert not known.handlings(["aa11"])["aa11"].acknowledged
    assert [e.action for e in known.incident_log("aa11")][:2] == ["acknowledged", "assigned"]


def test_what_a_person_opened_again_stays_open_under_a_detector_that_calls_it_over(
    known: Store, mara: Principal
) -> None:
    lifecycle.reopen(known, "ab22", mara, reason="users still complain", at=T)
    over = incident("ab22", state="resolved", started_at=1000.0, ended_at=1600.0)
    known.save_incident(over)
    held = known.incident("ab22")
    assert held is not None
    assert (held.state, held.ended_at) == ("open", None)
    assert "ab22" in [i.id for i in known.incidents(open_only=True)]
    assert "ab22" in [i.id for i in known.incidents(T, T + 1)]
    lifecycle.resolve(known, "ab22", mara, reason="cache warm again", at=T + 60)
    done = known.incident("ab22")
    assert done is not None
    assert (done.state, done.ended_at) == ("resolved", 1600.0)
    assert known.handlings(["ab22"])["ab22"].resolution == "cache warm again"


def test_a_detector_that_takes_it_up_again_has_the_last_word(known: Store, mara: Principal) -> None:
    lifecycle.reopen(known, "ab22", mara)
    known.log_incident("ab22", T, "reopened", "", "detector")
    known.save_incident(incident("ab22", state="open", started_at=1000.0))
    known.log_incident("ab22", T + 1, "resolved", "", "detector")
    known.save_incident(incident("ab22", state="resolved", started_at=1000.0, ended_at=T))
    done = known.incident("ab22")
    assert done is not None
    assert done.state == "resolved"


def test_only_what_a_person_opened_can_a_person_end(known: Store, mara: Principal) -> None:
    with pytest.raises(Conflict, match="evidence goes on"):
        lifecycle.resolve(known, "aa11", mara)
    with pytest.raises(Conflict, match="it is open"):
        lifecycle.reopen(known, "aa11", mara)
    with pytest.raises(Conflict, match="it is over"):
        lifecycle.snooze(known, "ab22", mara)


def test_a_second_acknowledgement_says_who_has_it(known: Store, mara: Principal) -> None:
    lifecycle.acknowledge(known, "aa11", mara, at=T)
    assert lifecycle.acknowledge(known, "aa11", mara).written == ()
    with pytest.raises(Conflict, match="mara acknowledged it on"):
        lifecycle.acknowledge(known, "aa11", Principal("ole", "admin"))


def test_of_many_who_acknowledge_at_once_one_has_it(known: Store) -> None:
    outcomes: list[str] = []

    def go(name: str) -> None:
        try:
            lifecycle.acknowledge(known, "aa11", Principal(name, "responder"))
            outcomes.append("has it")
        except Conflict:
            outcomes.append("too late")

    threads = [threading.Thread(target=go, args=(f"p{i}",)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(outcomes) == ["has it"] + ["too late"] * 5
    assert [e.seq for e in known.incident_log("aa11")] == [1]


def test_an_id_may_be_abbreviated_while_it_is_unique(known: Store, mara: Principal) -> None:
    assert lifecycle.acknowledge(known, "aa", mara).incident.id == "aa11"
    with pytest.raises(InputError, match="aa11, ab22"):
        lifecycle.find(known, "a")
    for wrong in ("zz", "", "%", "a_", "AA"):
        with pytest.raises(NotFound):
            lifecycle.find(known, wrong)


def test_merged_incidents_are_one_and_can_be_taken_apart(known: Store, mara: Principal) -> None:
    known.save_incident(incident("cc33"))
    merging.merge(known, "aa11", "cc33", mara, reason="same outage")
    whole = known.handlings(["cc33"])["cc33"]
    part = known.handlings(["aa11"])["aa11"]
    assert (whole.absorbed, part.merged_into) == (("aa11",), "cc33")
    stands = load(known, Config.built_in(), known.incidents(), T)
    (a,) = [i for i in known.incidents() if i.id == "aa11"]
    assert stands.notifiable(a).by == "cc33"
    with pytest.raises(Conflict, match="part of incident cc33"):
        lifecycle.acknowledge(known, "aa11", mara)
    merging.split(known, "aa11", mara)
    assert known.handlings(["cc33"])["cc33"].absorbed == ()
    assert known.handlings(["aa11"])["aa11"].merged_into == ""
    with pytest.raises(Conflict, match="not merged"):
        merging.split(known, "aa11", mara)


def test_a_whole_that_becomes_a_part_takes_its_parts_along(known: Store, mara: Principal) -> None:
    for name in ("cc33", "dd44"):
        known.save_incident(incident(name))
    merging.merge(known, "aa11", "cc33", mara)
    merging.merge(known, "cc33", "dd44", mara)
    h = known.handlings(["aa11", "cc33", "dd44"])
    assert h["dd44"].absorbed == ("aa11", "cc33")
    assert (h["aa11"].merged_into, h["cc33"].merged_into, h["cc33"].absorbed) == ("dd44", "dd44", ())
    with pytest.raises(Conflict, match="part of it"):
        merging.merge(known, "dd44", "aa11", mara)
    with pytest.raises(Conflict):
        merging.merge(known, "dd44", "dd44", mara)
    # into a part means into its whole
    merging.merge(known, "ab22", "cc33", mara)
    assert known.handlings(["ab22"])["ab22"].merged_into == "dd44"


def test_a_silence_with_a_broken_matcher_is_refused_and_nothing_is_kept(
    known: Store, mara: Principal
) -> None:
    with pytest.raises(ConfigError, match="pool"):
        silencing.silence(known, 'pool=~"("', mara, reason="r", ends_at=T + 60, at=T)
    with pytest.raises(ConfigError, match="end"):
        silencing.silence(known, 'pool="x"', mara, reason="r", ends_at=T, at=T)
    with pytest.raises(ConfigError, match="90 days"):
        silencing.silence(known, 'pool="x"', mara, reason="r", ends_at=T + 91 * 86400, at=T)
    with pytest.raises(InputError, match="reason"):
        silencing.silence(known, 'pool="x"', mara, reason=" ", ends_at=T + 60, at=T)
    assert known.silences() == []


def test_a_silence_is_taken_back_but_never_forgotten(known: Store, mara: Principal) -> None:
    s = silencing.silence(known, 'pool="coder"', mara, reason="load test", ends_at=T + 600, at=T)
    (i,) = [i for i in known.incidents() if i.id == "aa11"]
    assert load(known, Config.built_in(), [i], T + 1).standing(i).words(T) == ["silenced until 14:23"]
    silencing.unsilence(known, s.id[:5], mara, at=T + 10)
    assert load(known, Config.built_in(), [i], T + 11).notifiable(i).notify
    (kept,) = silencing.silences(known, all_=True)
    assert (kept.withdrawn_by, kept.withdrawn_at) == ("mara", T + 10)
    assert silencing.silences(known, at=T + 11) == []
    with pytest.raises(NotFound):
        silencing.unsilence(known, s.id, mara)


def test_a_mute_window_is_kept_with_its_zone_and_taken_back(known: Store, mara: Principal) -> None:
    m = silencing.mute(
        known,
        'class="coding-agent"',
        mara,
        days=["mon", "tue"],
        start="00:00",
        end="24:00",
        zone="Europe/Berlin",
        reason="migration",
        at=T,
    )
    (kept,) = known.mutes()
    assert kept == m
    assert (kept.days, kept.zone, kept.author) == (("mon", "tue"), "Europe/Berlin", "mara")
    silencing.unmute(known, m.id, mara, at=T + 5)
    assert known.mutes() == []
    assert [x.withdrawn_by for x in known.mutes(withdrawn=True)] == ["mara"]


def test_texts_that_cannot_be_kept_are_refused_or_made_harmless(known: Store, mara: Principal) -> None:
    with pytest.raises(InputError, match="empty"):
        lifecycle.note(known, "aa11", mara, text="  ")
    with pytest.raises(InputError, match="longer"):
        lifecycle.note(known, "aa11", mara, text="x" * 20_000)
    lifecycle.note(known, "aa11", mara, text="a\x00b\ud800c")
    assert known.incident_log("aa11")[0].text == "a\ufffdb\ufffdc"


def test_labels_that_do_not_exist_are_refused(known: Store, mara: Principal) -> None:
    with pytest.raises(InputError, match="no label"):
        labelling.label(known, "aa11", mara, label="fine")
    with pytest.raises(InputError, match="nonsense"):
        labelling.label(known, "aa11", mara, label="cause_wrong", kind="nonsense")
    with pytest.raises(InputError, match="cause_wrong only"):
        labelling.label(known, "aa11", mara, label="cause_right", kind="wedged")


def test_a_back_test_is_measured_against_what_people_said(store: Store, mara: Principal) -> None:
    """Five labelled incidents; the new run raises four of them again, one under another kind."""
    names = ("right", "wrong", "vague", "false", "gone")
    for n, name in enumerate(names):
        at = T + n * 10_000
        store.save_incident(incident(name, started_at=at, state="resolved", ended_at=at + 600))
    labelling.label(store, "right", mara, label="cause_right")
    labelling.label(store, "wrong", mara, label="cause_wrong", kind="wedged")
    labelling.label(store, "vague", mara, label="cause_wrong")
    labelling.label(store, "false", mara, label="false_alarm")
    labelling.label(store, "gone", mara, label="cause_right")
    found = [
        incident(
            f"new-{name}", started_at=T + n * 10_000 + 30, state="resolved", ended_at=T + n * 10_000 + 500
        )
        for n, name in enumerate(names)
        if name != "gone"
    ]
    found[1].kind = "wedged"
    elsewhere = incident("elsewhere", started_at=T + 40_000, ended_at=T + 40_500, pools=("chat",))
    a = labelling.agreement(store, [*found, elsewhere], T, T + 99_999)
    assert a.raised == (3, 4)
    assert a.missed == 1
    assert a.right_kind == (2, 3)
    assert {c.incident.id: c.agrees for c in a.checked} == {
        "right": True,
        "wrong": True,
        "vague": False,
        "false": False,
        "gone": False,
    }
    told = a.as_json()
    assert told["precision"]["share"] == 0.75
    assert told["precision"]["low"] == pytest.approx(0.194, abs=0.001)


def test_without_labels_the_agreement_is_unknown_and_not_zero(known: Store) -> None:
    told = labelling.agreement(known, [], 0, 9e9).as_json()
    assert told["labelled"] == 0
    assert told["precision"] == {"k": 0, "n": 0, "share": None, "low": None, "high": None}
