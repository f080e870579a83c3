"""A receiver that is away, a clock that jumps, a process that dies: nothing is missed and nothing comes twice."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from app.delivery.dispatcher import LEASE_S
from core.deliveries import Delivery
from core.errors import StoreError
from sql.store import Store
from tests.delivery.receiver import Answer, Receiver, receiver
from tests.delivery.world import World, config_of, incident


def hook_config(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "hook", "max_messages": 1000, "webhook": {"url": url}, **more}


@pytest.fixture
def world(store: Store, hook: Receiver) -> World:
    made = World(store, config_of([hook_config(hook.url)]))
    made.start()
    made.step()
    return made


def told(hook: Receiver) -> dict[str, list[str]]:
    """What the receiver took of each incident, in the order in which it came."""
    out: dict[str, list[str]] = defaultdict(list)
    for item in hook.items():
        out[item["subject"]].append(item["action"])
    return dict(out)


def test_an_incident_is_told_when_it_opens_changes_and_ends_and_not_in_between(
    world: World, hook: Receiver
) -> None:
    world.open("i-1", severity="ticket")
    world.step(ticks=10)
    world.change("i-1", severity="page")
    world.step(ticks=10)
    world.change("i-1", kind="capacity_shortfall")
    world.step(ticks=10)
    world.end("i-1")
    world.step(ticks=10)
    assert told(hook) == {"i-1": ["open", "update", "update", "resolve"]}
    first, second, third, last = hook.items()
    assert first["title"] == "KV eviction storm on coder-a: 96 → 12 % cache hits"
    assert first["where"] == "pool coder-a; replicas coder-a-0, coder-a-1; class coding-agent"
    assert (first["cause"], first["confidence"]) == ("The KV cache is too small for 48 sessions", 0.92)
    assert first["ruled_out"] == ["Slow replica", "Engine wedged"]
    assert first["first"].startswith("Admit fewer sessions")
    assert first["link"] == "http://127.0.0.1:8501/incident?id=i-1"
    assert second["before"] == "severity ticket → page"
    assert third["before"] == "was seen as KV eviction storm, is now Capacity shortfall"
    assert (last["phase"], last["sequence"]) == ("resolved", 4)
    assert last["ended_at"] is not None


def an_hour_of_changes(world: World) -> dict[str, list[str]]:
    """A simulated hour: 24 incidents on four pools that open, change, relapse and end. Returns what has to be told."""
    must: dict[str, list[str]] = {}
    for minute in range(60):
        if minute % 5 == 0:
            for n in range(2):
                id_ = f"i-{minute:02d}-{n}"
                world.open(id_, severity="ticket", pools=(f"pool-{(minute // 5 + n) % 4}",))
                must[id_] = ["open"]
        for id_ in list(must):
            opened = int(id_[2:4])
            if minute == opened + 3 and id_.endswith("0"):
                world.change(id_, severity="page")
                must[id_].append("update")
            if minute == opened + 12 and opened % 10 == 0:
                world.end(id_)
                must[id_].append("resolve")
            if minute == opened + 20 and opened % 20 == 0:
                world.change(id_, state="open", ended_at=None)
                must[id_].append("open")
        world.step(30, ticks=2)
    return must


@pytest.mark.parametrize("how", ["503", "429"])
def test_a_receiver_that_was_away_for_an_hour_misses_nothing_and_gets_nothing_twice(
    world: World, hook: Receiver, how: str
) -> None:
    world.open("before")
    world.step(ticks=5)
    assert told(hook) == {"before": ["open"]}
    taking = hook.answer
    wait = {"Retry-After": "45"} if how == "429" else {}
    hook.answer = lambda _: Answer(int(how), headers=wait)
    must = an_hour_of_changes(world)
    tried = len(hook.seen)
    assert told(hook) == {"before": ["open"]}
    tally = world.store.delivery_tallies()["hook"]
    assert tally.pending == sum(map(len, must.values()))
    assert tally.last_error.startswith("HTTP")
    assert tried < 400, "it is not hammered while it is away"
    hook.answer = taking
    world.step(5, ticks=60)
    assert told(hook) == {"before": ["open"], **must}
    ids = [item["delivery"] for item in hook.items()]
    assert len(ids) == len(set(ids))
    assert world.store.delivery_tallies()["hook"].pending == 0


def test_a_receiver_whose_machine_is_gone_for_an_hour_misses_nothing_either(store: Store) -> None:
    with receiver() as first:
        world = World(store, config_of([hook_config(first.url)]))
        world.start()
        world.step()
        world.open("before")
        world.step(ticks=5)
        assert told(first) == {"before": ["open"]}
    must = an_hour_of_changes(world)
    assert world.store.delivery_tallies()["hook"].last_error == "cannot be reached: Connection refused"
    with receiver(int(first.url.rsplit(":", 1)[1])) as again:
        world.step(5, ticks=60)
        assert told(again) == must


def test_a_wait_that_the_receiver_asks_for_is_kept(world: World, hook: Receiver) -> None:
    hook.answer = lambda _: Answer(429, headers={"Retry-After": "300"})
    world.open("i-1")
    world.step(ticks=4)
    assert len(hook.seen) == 1
    world.open("i-2", pools=("other",))
    world.step(10, ticks=27)
    assert len(hook.seen) == 1
    hook.answer = lambda _: Answer()
    world.step(10, ticks=5)
    assert told(hook) == {"i-1": ["open"], "i-2": ["open"]}


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 86400.0, -86400.0])
@pytest.mark.parametrize("away", [False, True])
def test_a_clock_that_jumps_loses_nothing_and_repeats_nothing(
    world: World, hook: Receiver, seconds: float, away: bool
) -> None:
    world.open("before")
    world.step(ticks=4)
    hook.answer = lambda _: Answer(503 if away else 200)
    world.open("i-1")
    world.open("i-2", pools=("other",))
    world.step(ticks=8)
    world.time.jump(seconds)
    world.step(ticks=2)
    world.change("i-1", severity="ticket")
    world.open("i-3")
    world.step(ticks=4)
    world.end("i-1")
    world.end("before")
    world.step(ticks=4)
    hook.answer = lambda _: Answer()
    world.step(5, ticks=40)
    assert told(hook) == {
        "before": ["open", "resolve"],
        "i-1": ["open", "update", "resolve"],
        "i-2": ["open"],
        "i-3": ["open"],
    }


def test_what_comes_and_goes_while_nothing_delivers_is_told_afterwards(world: World, hook: Receiver) -> None:
    world.open("i-1")
    world.step(ticks=4)
    assert world.dispatcher is not None
    world.dispatcher = None
    world.open("i-2")
    world.step(60, ticks=10)
    world.end("i-1")
    world.end("i-2")
    world.step(60, ticks=40)
    world.open("i-3")
    world.time.pass_(5)
    world.start("another process")
    world.step(5, ticks=10)
    assert told(hook) == {"i-1": ["open", "resolve"], "i-2": ["open", "resolve"], "i-3": ["open"]}


def test_imported_history_wakes_nobody(world: World, hook: Receiver) -> None:
    week = 7 * 86400.0
    world.store.save_incident(incident("old-open", world.time.now - week))
    world.store.save_incident(
        incident("old-over", world.time.now - week, state="resolved", ended_at=world.time.now - week)
    )
    world.step(ticks=10)
    assert hook.seen == []


def test_a_death_between_sending_and_noting_it_repeats_the_same_delivery_which_its_id_shows(
    world: World, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open("i-1")

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as m:
        m.setattr(type(world.store), "deliveries_sent", die)
        with pytest.raises(Killed):
            world.step(ticks=5)
    world.time.pass_(LEASE_S + 1)
    world.start("the next process")
    world.step(ticks=5)
    items = hook.items()
    assert [i["action"] for i in items] == ["open", "open"]
    assert items[0]["delivery"] == items[1]["delivery"]
    (row,) = world.store.deliveries_of("i-1")
    assert row.state == "sent"


def test_of_two_dispatchers_one_delivers_and_the_other_takes_over(
    world: World, hook: Receiver, store: Store
) -> None:
    other = World(store, world.config, world.time)
    second = other.start("b")
    world.open("i-1")
    for _ in range(6):
        world.step()
        second.tick()
    assert told(hook) == {"i-1": ["open"]}
    assert not second.leads()
    assert world.dispatcher is not None
    world.dispatcher = None  # it dies without giving its lease back
    world.end("i-1")
    for _ in range(14):
        world.step()
        second.tick()
    assert second.leads()
    assert told(hook) == {"i-1": ["open", "resolve"]}


def test_what_the_receiver_refuses_is_parked_shown_and_sent_when_asked_for(
    world: World, hook: Receiver
) -> None:
    hook.answer = lambda r: Answer(422, "unknown field") if b"i-bad" in r.body else Answer()
    world.open("i-bad")
    world.open("i-good")
    world.step(ticks=8)
    assert told(hook) == {"i-good": ["open"]}, "one that is refused takes no other with it"
    bad: Delivery = world.store.deliveries_of("i-bad")[0]
    assert (bad.state, bad.error, bad.attempts) == ("parked", "HTTP 422: unknown field", 1)
    world.step(60, ticks=5)
    assert len([r for r in hook.seen if b"i-bad" in r.body]) == 2, "once together, once alone"
    hook.answer = lambda _: Answer()
    assert world.store.retry_deliveries([bad.id], world.time.now) == [bad.id]
    world.step()
    assert told(hook) == {"i-good": ["open"], "i-bad": ["open"]}


def test_an_opening_that_was_refused_is_not_the_last_word_when_it_is_tried_again(
    world: World, hook: Receiver
) -> None:
    hook.answer = lambda r: Answer(422) if b'"action":"open"' in r.body else Answer()
    world.open("i-1")
    world.step(ticks=4)
    world.end("i-1")
    world.step(ticks=4)
    assert told(hook) == {"i-1": ["resolve"]}
    hook.answer = lambda _: Answer()
    world.store.retry_deliveries([world.store.deliveries_of("i-1")[0].id], world.time.now)
    world.step()
    assert told(hook) == {"i-1": ["resolve", "open", "resolve"]}


def test_one_message_that_always_fails_holds_up_no_other_for_long(world: World, hook: Receiver) -> None:
    hook.answer = lambda r: Answer(500) if b"i-bad" in r.body else Answer()
    world.open("i-bad")
    world.step(10, ticks=12)
    for n in range(3):
        world.open(f"i-{n}", pools=(f"pool-{n}",))
    world.step(5, ticks=10)
    assert told(hook) == {f"i-{n}": ["open"] for n in range(3)}
    assert world.store.deliveries_of("i-bad")[0].state == "pending"


def test_what_cannot_be_sent_for_days_is_given_up_and_says_so(world: World, hook: Receiver) -> None:
    hook.answer = lambda _: Answer(503)
    world.open("i-1")
    world.step(3600, ticks=80)
    (row,) = world.store.deliveries_of("i-1")
    assert row.state == "parked"
    assert row.error == "HTTP 503: ok; given up after 3 days"


def test_a_database_that_goes_away_after_sending_causes_no_second_message(
    world: World, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open("i-1")

    def away(*_: Any, **__: Any) -> None:
        raise StoreError("the database is away")

    with monkeypatch.context() as m:
        m.setattr(type(world.store), "deliveries_sent", away)
        for _ in range(5):
            try:
                world.step(5)
            except StoreError as error:
                last = str(error)
    assert last == "the database is away"
    world.step(5, ticks=10)
    assert told(hook) == {"i-1": ["open"]}
    assert world.store.deliveries_of("i-1")[0].state == "sent"


def test_an_early_warning_that_fades_is_told_as_over(world: World, hook: Receiver) -> None:
    world.open("i-1", state="announced", severity="ticket", detected_at=None, announced_at=world.time.now)
    world.step(ticks=4)
    world.end("i-1")
    world.step(ticks=4)
    first, last = hook.items()
    assert (first["phase"], first["detected_at"] is not None) == ("announced", True)
    assert (last["action"], last["note"]) == ("resolve", "the early warning is over")
