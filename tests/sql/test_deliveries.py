"""The outbox and the leases, on both databases."""

from __future__ import annotations

from dataclasses import replace

from core.deliveries import Delivery, Face
from core.incidents import Incident
from sql.deliveries import key_of
from sql.store import Store

T = 1_790_000_000.0


def row(receiver: str = "chat", subject: str = "i-1", seq: int = 1, **more: object) -> Delivery:
    made = Delivery(
        key_of(receiver, subject, seq), receiver, subject, seq, "open", "pending", "pool-a", T, T, T,
        face=Face("open", "page", "wedged"), message={"title": "Engine wedged"},
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_row_is_kept_once_and_read_back_as_it_was(store: Store) -> None:
    assert store.add_deliveries([row(), row("mail")]) == 2
    assert store.add_deliveries([replace(row(), message={"title": "another"})]) == 0
    assert store.pending_deliveries("chat") == [row()]
    assert [d.receiver for d in store.deliveries_of("i-1")] == ["chat", "mail"]


def test_what_is_sent_is_not_pending_and_what_failed_waits_for_its_time(store: Store) -> None:
    store.add_deliveries([row(), row(subject="i-2"), row(subject="i-3")])
    store.deliveries_sent([row().id], T + 5, "b-1", "ref")
    store.deliveries_failed([row(subject="i-2").id], T + 5, "HTTP 503", T + 9)
    store.deliveries_failed([row(subject="i-3").id], T + 5, "HTTP 400", None)
    (waiting,) = store.pending_deliveries("chat")
    assert (waiting.subject, waiting.attempts, waiting.error, waiting.due_at) == ("i-2", 1, "HTTP 503", T + 9)
    assert not waiting.due(T + 8)
    assert waiting.due(T + 9)
    assert waiting.due(T - 3600), "the clock was put back: the time that was set says nothing any more"
    tally = store.delivery_tallies()["chat"]
    assert (tally.pending, tally.failing, tally.parked, tally.sent) == (1, 1, 1, 1)
    assert (tally.oldest_pending, tally.last_sent) == (T, T + 5)
    assert tally.last_error in ("HTTP 503", "HTTP 400")
    assert store.last_sent("chat")["i-1"].reference == "ref"
    assert store.sent_batches("chat", T, T + 60) == [T + 5]
    assert store.sent_batches("chat", T + 5, T + 60) == []


def test_a_parked_row_is_tried_again_when_somebody_asks_and_a_sent_one_is_not(store: Store) -> None:
    store.add_deliveries([row(), row(subject="i-2")])
    store.deliveries_sent([row().id], T, "b")
    store.deliveries_failed([row(subject="i-2").id], T, "HTTP 400", None)
    assert store.retry_deliveries([row().id, row(subject="i-2").id], T + 60) == [row(subject="i-2").id]
    assert [d.subject for d in store.pending_deliveries()] == ["i-2"]
    store.deliveries_failed([row().id], T + 70, "too late", T + 80)
    assert store.deliveries_of("i-1")[0].state == "sent", "what was taken is not taken back"


def test_what_was_said_after_a_row_that_is_tried_again_goes_out_behind_it(store: Store) -> None:
    store.add_deliveries([row(seq=1), row(seq=2, action="resolve"), row("mail"), row(subject="i-2")])
    store.deliveries_failed([row().id], T, "HTTP 400", None)
    store.deliveries_sent([row(seq=2).id, row("mail").id], T, "b")
    assert store.retry_deliveries([row().id], T + 60) == [row().id, row(seq=2).id]
    assert [(d.subject, d.seq) for d in store.pending_deliveries("chat")] == [
        ("i-1", 1),
        ("i-1", 2),
        ("i-2", 1),
    ]
    assert store.pending_deliveries("mail") == []


def test_the_last_row_of_each_receiver_and_subject_is_found(store: Store) -> None:
    store.add_deliveries([row(), row(seq=2, action="resolve"), row(subject="i-2"), row("mail")])
    assert {k: d.seq for k, d in store.last_deliveries(["i-1", "i-2"]).items()} == {
        ("chat", "i-1"): 2,
        ("chat", "i-2"): 1,
        ("mail", "i-1"): 1,
    }
    assert store.living_subjects() == {"i-1", "i-2"}
    store.add_deliveries([row("mail", seq=2, action="resolve")])
    assert store.living_subjects() == {"i-2"}


def test_rows_are_listed_newest_first_in_pages(store: Store) -> None:
    store.add_deliveries([row(subject=f"i-{n}", made_at=T + n // 2) for n in range(6)])
    first = store.delivery_page(limit=4)
    rest = store.delivery_page(limit=4, before=(first[-1].made_at, first[-1].id))
    assert len({d.id for d in first + rest}) == 6
    assert [d.made_at for d in first + rest] == sorted((d.made_at for d in first + rest), reverse=True)
    assert store.delivery_page(limit=9, receiver="mail") == []
    assert [d.subject for d in store.delivery_page(limit=9, subject="i-3", state="pending")] == ["i-3"]
    assert store.deliveries_like(first[0].id[:9]) == [first[0]]
    assert store.deliveries_like("%") == []


def test_what_is_over_and_sent_is_forgotten_and_what_waits_is_not(store: Store) -> None:
    store.save_incident(Incident("i-3", "wedged", "page", "open", "t", T, updated_at=T))
    store.add_deliveries([row(subject=f"i-{n}") for n in range(1, 4)])
    store.deliveries_sent([row(subject="i-1").id, row(subject="i-3").id], T, "b")
    assert store.forget_deliveries(T + 10) == 1
    assert [d.subject for d in store.delivery_page(limit=9)] == ["i-3", "i-2"]


def test_one_of_two_holds_a_lease_until_it_runs_out_or_is_given_back(store: Store) -> None:
    first = store.acquire_lease("deliver", "a", 30, now=T)
    assert first is not None
    assert first.token == 1
    assert store.acquire_lease("deliver", "b", 30, now=T + 29) is None
    renewed = store.acquire_lease("deliver", "a", 30, now=T + 20)
    assert renewed is not None
    assert (renewed.token, renewed.taken_at, renewed.until) == (1, T, T + 50)
    taken = store.acquire_lease("deliver", "b", 30, now=T + 50)
    assert taken is not None
    assert taken.token == 2
    assert store.acquire_lease("deliver", "a", 30, now=T + 51) is None
    store.release_lease("deliver", "a")
    assert store.acquire_lease("deliver", "a", 30, now=T + 52) is None, "only the holder gives it back"
    store.release_lease("deliver", "b")
    assert store.acquire_lease("deliver", "a", 30, now=T + 53) is not None


def test_a_lease_from_a_clock_that_was_put_back_binds_nobody(store: Store) -> None:
    store.acquire_lease("deliver", "a", 30, now=T + 3600)
    assert store.acquire_lease("deliver", "b", 30, now=T) is not None


def test_the_databases_clock_is_unix_time(store: Store) -> None:
    import time

    assert abs(store.clock() - time.time()) < 5
    held = store.acquire_lease("x", "a", 30)
    assert held is not None
    assert abs(held.until - time.time() - 30) < 5
    assert store.lease("x") == held
