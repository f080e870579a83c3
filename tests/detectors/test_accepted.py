"""A person accepts what an incident shows: it ends, is not raised again, and the normal is learnt anew."""

from __future__ import annotations

from core.records import Event
from detectors.accepted import RELEARN_S, Accepted, accepted, event
from tests.detectors.fleet import START, History, Run, history, on, run

SLOW = on(("a-1",), 40, itl=0.032)
SLOWER = on(("a-1",), 150, itl=0.06)


def slow(minutes: float) -> History:
    return history(minutes, fault=SLOW)


def incident_of(r: Run) -> str:
    (one,) = r.incidents
    return one.incident.id


def accept(minute: float, incident: str = "", replicas: tuple[str, ...] = ("a-1",)) -> Event:
    at = START + minute * 60
    since = START + 40 * 60
    return event(Accepted(at, since, "a", "slow_replica", frozenset(replicas), incident, "ana", "older card"))


def test_an_accepted_incident_ends_with_who_and_why_and_does_not_come_back() -> None:
    h = slow(150)
    ident = incident_of(run(slow(60)))
    r = run(h, events=[accept(60, ident)])
    (one,) = r.incidents
    assert one.incident.state == "resolved"
    assert one.incident.ended_at == START + 3600
    said = [c for _, c in r.changes if c.action == "accepted"]
    assert [c.text for c in said] == ["accepted as the new normal by ana: older card"]


def test_without_acceptance_the_same_history_stays_open() -> None:
    (one,) = run(slow(150)).incidents
    assert one.incident.state == "open"


def test_what_gets_worse_than_the_accepted_normal_is_raised_again() -> None:
    def fault(m: float, name: str, n: object) -> object:
        return SLOWER(m, name, SLOW(m, name, n))  # type: ignore[arg-type]

    h = history(175, fault=fault)  # type: ignore[arg-type]
    ident = incident_of(run(slow(60)))
    r = run(h, events=[accept(60, ident)])
    later = [c for c in r.incidents if c.incident.id != ident]
    assert [c.incident.kind for c in later] == ["slow_replica"]
    assert START + 150 * 60 <= (later[0].incident.detected_at or 0) <= START + 155 * 60


def test_acceptance_at_one_place_says_nothing_about_another() -> None:
    r = run(slow(90), events=[accept(60, "", ("a-2",))])
    (one,) = r.incidents
    assert one.incident.state == "open"


def test_an_acceptance_survives_as_an_event_and_begins_when_it_was_said() -> None:
    a = Accepted(START + 60, START, "a", "wedged", frozenset({"a-0"}), "i1", "ana", "why")
    assert accepted([event(a)], START + 59) == []
    assert accepted([event(a)], START + 60) == [a]
    assert RELEARN_S == 3600.0


def test_events_that_are_no_acceptance_are_passed_over() -> None:
    odd = [Event(1.0, "new_normal", data={}), Event(1.0, "note"), Event(1.0, "new_normal", data={"kind": 3})]
    assert accepted(odd, 2.0) == []
    half = accepted(
        [Event(1.0, "new_normal", pool="a", data={"kind": "wedged", "since": "x", "replicas": 3})], 2.0
    )
    assert half == [Accepted(1.0, 1.0, "a", "wedged", who="user")]
