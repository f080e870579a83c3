"""Which earlier incidents are called alike, and what is said to have ended them."""

from __future__ import annotations

from app.services.labelling import label
from app.services.lifecycle import accept_new_normal, note
from app.services.people import Principal
from app.services.similar import ended_by, similar
from core.incidents import Incident
from core.records import Event
from sql.store import Store
from tests.incidents.make import T, incident

DAY = 86400.0


def past(name: str, days: float, **changes: object) -> Incident:
    at = T - days * DAY
    return incident(name, **{"state": "resolved", "started_at": at, "ended_at": at + 600, **changes})


def test_the_most_alike_come_first_and_the_unlike_not_at_all(store: Store) -> None:
    store.save_incidents(
        [
            incident(),
            past("twin", 30),
            past("kind", 1, pools=("chat",), replicas=("chat-0",), classes=("chat",)),
            past("half", 2, replicas=("coder-1", "coder-2")),
            past("place", 3, kind="wedged"),
            past("other", 4, kind="wedged", pools=("chat",), replicas=("chat-0",), classes=("chat",)),
            past("ancient", 500),
            incident("later", started_at=T + 600),
        ]
    )
    found = similar(store, incident())
    assert [s.incident.id for s in found] == ["twin", "half", "place", "kind"]
    assert found[1].why == ("same kind", "same pool coder", "same replica coder-1", "same class coding-agent")
    assert similar(store, incident(), limit=1)[0].incident.id == "twin"


def test_among_equals_the_latest_is_first(store: Store) -> None:
    store.save_incidents([past("old", 9), past("new", 2)])
    assert [s.incident.id for s in similar(store, incident())] == ["new", "old"]


def test_what_a_person_wrote_says_more_than_an_event(store: Store) -> None:
    mara = Principal("mara", "responder")
    store.save_incident(past("a", 2))
    store.add_events([Event(T - 2 * DAY + 500, "deploy", "release 43", pool="coder")])
    assert similar(store, incident())[0].ended_by == "deploy release 43 at 14:21, 2\u00a0min before its end"
    note(store, "a", mara, text="rolled back")
    assert similar(store, incident())[0].ended_by == "mara noted: rolled back"
    label(store, "a", mara, label="false_alarm")
    assert similar(store, incident())[0].label == "false alarm"


def test_an_event_of_another_pool_replica_or_hour_ended_nothing() -> None:
    i = past("a", 2)
    end = T - 2 * DAY + 600
    assert ended_by(i, [], []) == "nothing recorded near its end"
    elsewhere = [Event(end - 60, "restart", "", pool="coder", replica="coder-7")]
    assert ended_by(i, [], elsewhere) == "nothing recorded near its end"
    assert ended_by(incident(), [], []) == "still open"


def test_what_was_accepted_as_normal_says_so(store: Store) -> None:
    store.save_incident(past("a", 2))
    accept_new_normal(store, "a", Principal("ole", "admin"), reason="new model", at=T - 2 * DAY + 600)
    assert similar(store, incident())[0].ended_by == "ole accepted as normal: new model"
