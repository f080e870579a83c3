"""Several incidents that are one: merged into the one that people work on, and split off again. The parts stay as they are."""

from __future__ import annotations

from app.services.lifecycle import Acted, Conflict, checked, find, moment, standing
from app.services.people import Principal, require
from core.lifecycle import UNTOUCHED, Act
from sql.life_store import Known
from sql.store import Store


def merge(
    store: Store, part: str, into: str, by: Principal, *, reason: str = "", at: float | None = None
) -> Acted:
    """Make ``part`` (with what was merged into it) a part of ``into``: nobody is told of it by itself.

    Where ``into`` is itself a part, the whole that it belongs to is meant. Conflict where they are one. Returns the whole.
    """
    require(by, "responder")
    words = checked(reason, "reason")
    one, other = find(store, part), find(store, into)
    stands = store.handlings([one.id, other.id])
    mine, theirs = stands.get(one.id, UNTOUCHED), stands.get(other.id, UNTOUCHED)
    whole = theirs.merged_into or other.id
    if whole == one.id:
        raise Conflict(
            one.id, f"{other.id} is part of it", "split that off first, or merge the other way round"
        )

    def run(known: Known) -> list[tuple[str, Act]]:
        for i in (one.id, whole):
            if known[i][1].merged_into:
                raise Conflict(i, f"it is part of incident {known[i][1].merged_into}", "split it off first")
        acts = []
        for i in (one.id, *known[one.id][1].absorbed):
            if i != one.id:
                acts.append((one.id, Act("split_off", "", {"incident": i})))
            acts += [
                (i, Act("merged", words, {"into": whole})),
                (whole, Act("absorbed", words, {"incident": i})),
            ]
        return acts

    ids = list(dict.fromkeys([one.id, whole, *mine.absorbed]))
    written = store.act(ids, run, at=moment(at), who=by.name)
    found = find(store, whole)
    return Acted(found, standing(store, found).handling, tuple(written))


def split(store: Store, part: str, by: Principal, *, reason: str = "", at: float | None = None) -> Acted:
    """Take an incident out of the one that it was merged into. Conflict where it was not merged."""
    require(by, "responder")
    words = checked(reason, "reason")
    one = find(store, part)
    whole = store.handlings([one.id]).get(one.id, UNTOUCHED).merged_into

    def run(known: Known) -> list[tuple[str, Act]]:
        if not known[one.id][1].merged_into:
            raise Conflict(one.id, "it was not merged into another", "there is nothing to split")
        return [
            (one.id, Act("split", words, {"from": whole})),
            (whole, Act("split_off", words, {"incident": one.id})),
        ]

    written = store.act([one.id, whole] if whole else [one.id], run, at=moment(at), who=by.name)
    return Acted(one, standing(store, one).handling, tuple(written))
