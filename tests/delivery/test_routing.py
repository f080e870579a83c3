"""Who is told of what, when: severity, matchers, teams, escalation, silences, mutes, snoozes, merging, groups, digests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.batching import CAP_S, Limits, backoff, batches
from app.delivery.planning import told_at, wanted
from app.delivery.routing import Routing
from app.services import lifecycle, merging, silencing
from app.services.people import Principal
from core.attention import TOLD, Decision
from core.deliveries import Delivery, Face
from core.lifecycle import UNTOUCHED
from sql.store import Store
from tests.delivery.receiver import Receiver
from tests.delivery.world import T0, World, config_of, incident

MARA = Principal("mara", "admin")


def hooks(url: str, *names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": n, "webhook": {"url": f"{url}/{n}"}, **more} for n in names]


def told(hook: Receiver, name: str) -> list[tuple[str, str]]:
    """(incident, action) that one of several receivers of the same server took, in order."""
    return [(i["subject"], i["action"]) for r in hook.taken if r.path == f"/{name}" for i in r.json["items"]]


def targets(config: Any, one: Any, at: float = T0) -> list[str]:
    return [t.receiver for t in Routing.of(config).targets(one, UNTOUCHED, None, at)]


def test_without_routes_everybody_is_told_of_tickets_and_pages_save_contacts_of_teams() -> None:
    config = config_of(
        hooks("http://h", "a", "b", "lead"),
        teams=[{"name": "t", "match": ['pool="coder-a"'], "contacts": ["lead"]}],
    )
    assert targets(config, incident("i", T0)) == ["a", "b", "lead"]
    assert targets(config, incident("i", T0, pools=("other",))) == ["a", "b"]
    assert targets(config, incident("i", T0, severity="info")) == []


def test_every_route_that_matches_applies_and_each_receiver_is_told_once() -> None:
    config = config_of(
        hooks("http://h", "page", "chat", "all"),
        routes=[
            {
                "match": 'pool=~"coder-.*",class="coding-agent"',
                "min_severity": "page",
                "receivers": ["page", "chat"],
            },
            {"match": ['kind="wedged"', 'pool="chat-a"'], "receivers": "chat"},
            {"min_severity": "info", "receivers": "all"},
        ],
    )
    assert targets(config, incident("i", T0)) == ["page", "chat", "all"]
    assert targets(config, incident("i", T0, severity="ticket")) == ["all"]
    assert targets(config, incident("i", T0, pools=("x", "chat-a"), severity="ticket")) == ["chat", "all"]
    assert targets(config, incident("i", T0, kind="wedged", severity="ticket")) == ["chat", "all"]
    assert targets(config, incident("i", T0, severity="info", kind="wedged")) == ["all"]


def test_a_page_that_nobody_acknowledges_climbs_and_an_acknowledgement_stops_it(
    store: Store, hook: Receiver
) -> None:
    config = config_of(
        hooks(hook.url, "oncall", "second", "boss"),
        routes=[{"receivers": "oncall", "escalate_after": "10m", "escalate_to": ["second", "boss"]}],
    )
    world = World(store, config)
    world.start()
    world.step()
    world.open("i-1")
    world.open("i-2", pools=("other",))
    world.step(30, ticks=18)
    assert (told(hook, "oncall"), told(hook, "second")) == ([("i-1", "open"), ("i-2", "open")], [])
    lifecycle.acknowledge(store, "i-2", MARA, at=world.time.now)
    world.step(30, ticks=6)
    assert told(hook, "second") == [("i-1", "open")]
    assert hook.taken[-1].json["items"][0]["note"] == "nobody has acknowledged this for 10 min"
    world.step(30, ticks=20)
    assert told(hook, "boss") == [("i-1", "open")]
    world.end("i-1")
    world.end("i-2")
    world.step(30, ticks=4)
    for name in ("oncall", "second", "boss"):
        assert ("i-1", "resolve") in told(hook, name), "whoever was told hears the end"
    assert ("i-2", "open") not in told(hook, "second")
    assert ("i-2", "resolve") not in told(hook, "second")


def test_a_team_is_told_contact_by_contact_and_a_relapse_begins_anew(store: Store, hook: Receiver) -> None:
    config = config_of(
        hooks(hook.url, "first", "second"),
        teams=[
            {
                "name": "t",
                "match": 'pool=~"coder-.*"',
                "contacts": ["first", "second"],
                "escalate_after": "5m",
            }
        ],
    )
    world = World(store, config)
    world.start()
    world.step()
    world.open("i-1")
    world.step(30, ticks=12)
    assert (told(hook, "first"), told(hook, "second")) == ([("i-1", "open")], [("i-1", "open")])
    world.end("i-1")
    world.step(30, ticks=3)
    world.change("i-1", state="open", ended_at=None)
    store.log_incident("i-1", world.time.now, "reopened", "", "detector")
    world.step(30, ticks=4)
    assert told(hook, "first") == [("i-1", "open"), ("i-1", "resolve"), ("i-1", "open")]
    assert told(hook, "second") == [("i-1", "open"), ("i-1", "resolve")]
    world.step(30, ticks=8)
    assert told(hook, "second")[-1] == ("i-1", "open")


@pytest.fixture
def world(store: Store, hook: Receiver) -> World:
    made = World(store, config_of(hooks(hook.url, "hook")))
    made.start()
    made.step()
    return made


def test_what_is_silenced_is_told_when_the_silence_ends_and_its_end_if_it_was_told(
    world: World, hook: Receiver
) -> None:
    world.open("known")
    world.step(ticks=4)
    silencing.silence(
        world.store, 'pool="coder-a"', MARA, reason="drill", at=world.time.now, ends_at=world.time.now + 600
    )
    world.open("new")
    world.open("short")
    world.open("elsewhere", pools=("other",))
    world.change("known", severity="ticket")
    world.step(30, ticks=10)
    assert told(hook, "hook") == [("known", "open"), ("elsewhere", "open")]
    world.end("known")
    world.end("short")
    world.step(30, ticks=4)
    assert told(hook, "hook")[2:] == [("known", "resolve")]
    world.step(30, ticks=10)
    assert told(hook, "hook")[3:] == [("new", "open")]


def test_a_mute_window_keeps_quiet_by_the_clock_on_the_wall(world: World, hook: Receiver) -> None:
    at = world.time.now  # 2026-09-21 14:13 UTC
    silencing.mute(
        world.store,
        'pool="coder-a"',
        MARA,
        days=["mon"],
        start="14:00",
        end="14:20",
        zone="UTC",
        reason="batch",
        at=at,
    )
    world.open("i-1", severity="ticket")
    world.step(30, ticks=10)
    assert told(hook, "hook") == []
    world.step(30, ticks=6)
    assert told(hook, "hook") == [("i-1", "open")]


def test_a_snoozed_incident_is_heard_again_when_it_is_worse(world: World, hook: Receiver) -> None:
    world.open("i-1", severity="ticket")
    world.step(ticks=4)
    lifecycle.snooze(world.store, "i-1", MARA, at=world.time.now)
    world.change("i-1", kind="slow_replica")
    world.step(ticks=6)
    assert told(hook, "hook") == [("i-1", "open")]
    world.change("i-1", severity="page")
    world.step(ticks=6)
    assert told(hook, "hook") == [("i-1", "open"), ("i-1", "update")]
    assert hook.items()[-1]["note"] == "worse than when mara snoozed it: severity page, was ticket"


def test_a_merged_incident_ends_for_its_receivers_and_its_own_end_is_not_told_again(
    world: World, hook: Receiver
) -> None:
    world.open("i-1")
    world.open("i-2")
    world.step(ticks=4)
    merging.merge(world.store, "i-2", "i-1", MARA, at=world.time.now)
    world.step(ticks=4)
    assert told(hook, "hook")[2:] == [("i-2", "resolve")]
    assert hook.items()[-1]["note"] == "part of incident i-1"
    world.end("i-2")
    world.end("i-1")
    world.step(ticks=4)
    assert told(hook, "hook")[3:] == [("i-1", "resolve")]


def test_what_a_person_opens_again_is_told_however_old_it_is(world: World, hook: Receiver) -> None:
    world.open("i-1")
    world.step(ticks=4)
    world.end("i-1")
    world.step(3600, ticks=6)
    lifecycle.reopen(world.store, "i-1", MARA, at=world.time.now)
    world.step(ticks=4)
    assert told(hook, "hook") == [("i-1", "open"), ("i-1", "resolve"), ("i-1", "open")]
    lifecycle.resolve(world.store, "i-1", MARA, at=world.time.now)
    world.step(ticks=4)
    assert told(hook, "hook")[3:] == [("i-1", "resolve")]


def test_incidents_of_one_pool_within_a_short_time_go_out_together(world: World, hook: Receiver) -> None:
    for n in range(3):
        world.open(f"a-{n}")
        world.step(2)
    world.open("b-0", pools=("other",))
    world.step(2, ticks=10)
    assert [[i["subject"] for i in r.json["items"]] for r in hook.taken] == [["a-0", "a-1", "a-2"], ["b-0"]]
    assert hook.taken[0].json["type"] == "group"
    assert hook.taken[0].json["summary"] == "3 incidents on coder-a: 3 opened"


def test_more_than_a_receiver_may_get_comes_as_one_digest_and_nothing_is_left_out(
    store: Store, hook: Receiver
) -> None:
    world = World(store, config_of(hooks(hook.url, "hook", max_messages=4, per="10m")))
    world.start()
    world.step()
    for n in range(12):
        world.open(f"i-{n:02d}", pools=(f"pool-{n:02d}",), severity="page" if n == 11 else "ticket")
    world.step(15, ticks=4)
    kinds = [r.json["type"] for r in hook.taken]
    assert kinds == ["single", "single", "single", "digest"]
    assert hook.taken[0].json["items"][0]["subject"] == "i-11", "a page goes before tickets"
    assert len(told(hook, "hook")) == len(set(told(hook, "hook"))) == 12
    for n in range(12):
        world.end(f"i-{n:02d}")
    world.step(15, ticks=20)
    assert len(hook.taken) == 4, "no more for now"
    world.step(15, ticks=30)
    assert sorted(told(hook, "hook")[12:]) == [(f"i-{n:02d}", "resolve") for n in range(12)]
    assert len(hook.taken) <= 8


# --- pure parts

LIVING = Face("open", "page", "wedged")


def row(seq: int = 1, action: str = "open", face: Face = LIVING, **more: Any) -> Delivery:
    made = Delivery(f"d-{seq}", "r", "i-1", seq, action, "pending", "p", T0, T0, T0, face=face)  # type: ignore[arg-type]
    return replace(made, **more)


@pytest.mark.parametrize(
    ("state", "before", "decision", "routed", "actions"),
    [
        ("open", None, TOLD, True, ["open"]),
        ("announced", None, TOLD, True, ["open"]),
        ("open", None, TOLD, False, []),
        ("open", None, Decision(False, "silenced"), True, []),
        ("open", Face("open", "page", "kv_eviction_storm"), TOLD, True, []),
        ("open", Face("announced", "page", "kv_eviction_storm"), TOLD, True, ["update"]),
        ("open", Face("open", "ticket", "kv_eviction_storm"), TOLD, False, ["update"]),
        ("open", Face("open", "ticket", "kv_eviction_storm"), Decision(False, "muted"), True, []),
        ("open", LIVING, Decision(False, "merged", "part of x"), True, ["resolve"]),
        ("open", Face("resolved", "page", "wedged"), TOLD, True, ["open"]),
        ("resolved", LIVING, TOLD, True, ["resolve"]),
        ("resolved", LIVING, Decision(False, "silenced"), False, ["resolve"]),
        ("resolved", Face("resolved", "page", "wedged"), TOLD, True, []),
        ("resolved", None, TOLD, True, ["open", "resolve"]),
        ("resolved", None, TOLD, False, []),
        ("resolved", None, Decision(False, "silenced"), True, []),
    ],
)
def test_a_receiver_is_told_the_difference_to_what_it_knows(
    state: str, before: Face | None, decision: Decision, routed: bool, actions: list[str]
) -> None:
    one = incident("i-1", T0, state=state, ended_at=T0 if state == "resolved" else None)
    told = row(face=before) if before is not None else None
    steps = wanted(one, told, decision, routed=routed, fresh_since=T0 - 60, seen_since=T0 - 60)
    assert [s.action for s in steps] == actions
    if steps:
        after = row(2, steps[-1].action, steps[-1].face)
        assert wanted(one, after, decision, routed=routed, fresh_since=0, seen_since=0) == [], "told once"


def test_the_time_of_the_first_notice_is_that_of_the_present_episode() -> None:
    assert told_at([]) is None
    first = [row(1), row(1, receiver="b", made_at=T0 + 50)]
    assert told_at(first) == T0
    ended = [*first, row(2, "resolve", made_at=T0 + 60), row(2, "resolve", receiver="b", made_at=T0 + 60)]
    assert told_at(ended) is None
    assert told_at([*ended, row(3, made_at=T0 + 90)]) == T0 + 90


@given(st.integers(0, 100), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 3600))
def test_a_wait_grows_up_to_a_limit_is_never_nothing_and_never_shorter_than_asked_for(
    attempts: int, draw: float, asked: float | None
) -> None:
    wait = backoff(attempts, draw, asked)
    assert wait >= max(1.0, asked or 0.0)
    assert wait <= max(CAP_S, asked or 0.0)
    assert backoff(attempts + 1, draw, asked) >= wait


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 6), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 6),
    st.booleans(),
    st.booleans(),
)
def test_batches_keep_the_order_of_each_incident_name_nothing_twice_and_keep_the_limit(
    rows: list[tuple[int, int, int, bool]], recent: int, groups: bool, limited: bool
) -> None:
    waiting, seqs = [], dict.fromkeys(range(6), 0)
    for subject, place, attempts, due in rows:
        seqs[subject] += 1
        waiting.append(
            row(
                seqs[subject], subject=f"i-{subject}", id=f"{subject}-{seqs[subject]}", place=f"p-{place}",
                attempts=attempts, due_at=T0 if due else T0 + 600,
                message={"type": "incident", "subject": f"i-{subject}", "action": "open", "title": "t"},
            )
        )  # fmt: skip
    made = batches(waiting, {}, [T0 - 1] * recent, Limits(groups, limited, 0.0, 5), T0)
    sent = [i.delivery for b in made for i in b.items]
    assert len({d.id for d in sent}) == len(sent)
    for subject in {d.subject for d in sent}:
        mine = [d.seq for d in sent if d.subject == subject]
        assert mine == list(range(1, len(mine) + 1))
    if limited:
        assert len(made) <= max(0, 5 - recent)
    if not groups:
        assert all(len(b.items) == 1 for b in made)
    if any(d.due(T0) and d.seq == 1 for d in waiting) and (not limited or recent < 5):
        assert made, "what can go goes"
