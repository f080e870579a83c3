"""Silences and mute windows: made by a responder, taken back by a responder, listed for everybody."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.lifecycle import MAX_REASON, NotFound, checked, moment
from app.services.people import Principal, require
from core.errors import ConfigError, InputError
from core.silences import MuteWindow, Silence, canonical, check_window
from sql.store import Store

LONGEST = 90 * 86400.0
"""A silence is meant to end: what nobody wants to hear of for longer belongs into the configuration (``detect.shadow``)."""


def silence(
    store: Store,
    matchers: str,
    by: Principal,
    *,
    reason: str,
    ends_at: float,
    starts_at: float | None = None,
    at: float | None = None,
) -> Silence:
    """Silence incidents that match until ``ends_at``. ConfigError names a broken matcher or an impossible time."""
    require(by, "responder")
    now = moment(at)
    begin = now if starts_at is None else starts_at
    text = canonical(matchers)
    words = checked(reason, "reason", MAX_REASON, needed=True)
    if ends_at <= max(begin, now):
        raise ConfigError("end", "is not after the start and now", "give a later time")
    if ends_at - begin > LONGEST:
        raise ConfigError(
            "end", "is more than 90 days after the start", "end it sooner; it can be made again"
        )
    made = Silence(text, begin, ends_at, by.name, words, now)
    key = store.add_silence(made)
    return next(s for s in store.silences() if s.id == key)


def unsilence(store: Store, key: str, by: Principal, *, at: float | None = None) -> Silence:
    """Take a silence back; its id may be abbreviated. NotFound where none of that id is in force."""
    require(by, "responder")
    found = _only([s.id for s in store.silences() if s.withdrawn_at is None], key, "silence")
    if not store.withdraw_silence(found, by.name, moment(at)):
        raise NotFound(key, "no such silence in force", "list them with `gustfront incidents silences`")
    return next(s for s in store.silences() if s.id == found)


def silences(store: Store, *, all_: bool = False, at: float | None = None) -> list[Silence]:
    """Silences that hold or will; with ``all_`` those over and taken back too. The one that ends last first."""
    return store.silences(ending_after=None if all_ else moment(at))


def mute(
    store: Store,
    matchers: str,
    by: Principal,
    *,
    days: Sequence[str],
    start: str,
    end: str,
    zone: str,
    reason: str,
    at: float | None = None,
) -> MuteWindow:
    """Mute incidents that match every week. ConfigError names a broken matcher, day, time or zone."""
    require(by, "responder")
    made = MuteWindow(
        canonical(matchers),
        check_window(days, start, end, zone),
        start,
        end,
        zone,
        by.name,
        checked(reason, "reason", MAX_REASON, needed=True),
        moment(at),
    )
    key = store.add_mute(made)
    return next(m for m in store.mutes(withdrawn=True) if m.id == key)


def unmute(store: Store, key: str, by: Principal, *, at: float | None = None) -> MuteWindow:
    """Take a mute window back; its id may be abbreviated. NotFound where none of that id is in force."""
    require(by, "responder")
    found = _only([m.id for m in store.mutes()], key, "mute window")
    if not store.withdraw_mute(found, by.name, moment(at)):
        raise NotFound(key, "no such mute window in force", "list them with `gustfront incidents silences`")
    return next(m for m in store.mutes(withdrawn=True) if m.id == found)


def _only(ids: Sequence[str], key: str, what: str) -> str:
    word = key.strip()
    found = [i for i in ids if i == word] or [i for i in ids if word and i.startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            word, f"several of that name begin so: {', '.join(found[:5])}", "write more of the id"
        )
    raise NotFound(
        word or "(empty)", f"no such {what} in force", "list them with `gustfront incidents silences`"
    )
