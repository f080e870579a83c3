"""What people do to an incident, on its page: acknowledge in one click; assign, note, keep quiet, judge and merge in two.

Each act is a callback, so that it is done before the page is drawn again; what went wrong is said above the buttons.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from app import queries
from app.services import labelling, lifecycle, merging, silencing
from app.services.attention import Standing
from app.services.incident_load import Loaded
from app.services.incident_view import kind_title
from app.services.people import Forbidden, Principal
from app.services.postmortem import post_mortem
from app.services.wording import clock
from app.storage import configuration, shared_store, writing_store
from app.ui import who
from app.ui.html import Markup, Tone, chip, div, show
from core.errors import GustfrontError
from core.kinds import KINDS
from core.lifecycle import LABEL_WORDS, LABELS
from core.silences import about
from core.times import parse_duration
from sql.store import Store

ROLE = "responder"
FLASH = "_acted"
TONES: dict[str, Tone] = {"acknowledged": "green", "silenced": "blue", "snoozed": "blue", "muted": "blue"}
Do = Callable[[Store, Principal], object]


def marks(standing: Standing, at: float) -> list[Markup]:
    """How an incident stands with people, as chips."""
    return [chip(w, TONES.get(w.split(" ", 1)[0], "grey")) for w in standing.words(at)]


def controls(loaded: Loaded) -> None:
    """The row of buttons, with what the last one said."""
    i = loaded.view.incident
    h = loaded.standing.handling
    said = st.session_state.pop(FLASH, None)
    if said:
        tone, text = said
        (st.error if tone == "bad" else st.success)(text, icon=":material/info:")
    reason = who.why_not(ROLE)
    off = bool(reason)
    if loaded.whole is not None:
        show(
            div(f"Merged into incident {loaded.whole.id}: act on that one, or split this off.", class_="gf-p")
        )
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if loaded.whole is not None:
            _button("Split off", "split", i.id, lambda s, by: merging.split(s, i.id, by), off, reason)
        elif not h.acknowledged:
            _button(
                "Acknowledge",
                "ack",
                i.id,
                lambda s, by: lifecycle.acknowledge(s, i.id, by),
                off,
                reason or "You have it: nobody else is told until it is resolved",
                primary=i.state != "resolved",
            )
        else:
            _button(
                "Take back acknowledgement",
                "unack",
                i.id,
                lambda s, by: lifecycle.unacknowledge(s, i.id, by),
                off,
                reason,
            )
        with st.popover("Assign", disabled=off, help=reason or None):
            _assign(loaded)
        with st.popover("Note", disabled=off, help=reason or None):
            _note(i.id)
        with st.popover("Keep quiet", disabled=off, help=reason or None):
            _quiet(loaded)
        with st.popover("What was it?", disabled=off, help=reason or None):
            _judge(loaded)
        with st.popover("More", disabled=off, help=reason or None):
            _more(loaded)
        if i.ended_at is not None or i.state == "open":
            st.download_button(
                "Post-mortem",
                data=lambda: post_mortem(shared_store(), configuration(), i.id).zip(),
                file_name=f"post-mortem-{i.id}.zip",
                mime="application/zip",
                key=f"postmortem_{i.id}",
                on_click="ignore",
                help="Markdown with timeline, evidence, pictures and links, filled in as far as the data go",
            )


def _assign(loaded: Loaded) -> None:
    i, h = loaded.view.incident, loaded.standing.handling
    key = f"assign_to_{i.id}"
    team = loaded.standing.team
    st.text_input("To a person or team", value=h.assignee or "", placeholder=team or "name", key=key)
    _button("Assign", "assign", i.id, lambda s, by: lifecycle.assign(s, i.id, by, to=_typed(key)), False, "")
    me = who.current().name
    _button(f"To me ({me})", "mine", i.id, lambda s, by: lifecycle.assign(s, i.id, by, to=by.name), False, "")


def _note(incident: str) -> None:
    key = f"note_text_{incident}"
    st.text_area("Note for the log", key=key, placeholder="what you saw or did")

    def write(s: Store, by: Principal) -> None:
        lifecycle.note(s, incident, by, text=_typed(key))
        st.session_state[key] = ""

    _button("Write down", "note", incident, write, False, "")


def _quiet(loaded: Loaded) -> None:
    i, h = loaded.view.incident, loaded.standing.handling
    why, how_long = f"quiet_why_{i.id}", f"quiet_long_{i.id}"
    st.text_input("Reason", key=why, placeholder="why nobody needs to hear of it")
    st.text_input("For", value="2h", key=how_long, help="such as 30m, 2h or 1d")
    if h.snooze is not None:
        _button(
            "Wake", "wake", i.id, lambda s, by: lifecycle.wake(s, i.id, by), False, "Take the snooze back"
        )
    elif i.state != "resolved":
        _button(
            "Snooze until worse",
            "snooze",
            i.id,
            lambda s, by: lifecycle.snooze(
                s, i.id, by, reason=_typed(why), seconds=parse_duration(_typed(how_long))
            ),
            False,
            "Heard of again when severity, classes, replicas or the share of late requests grow, or after that time",
        )
    matchers = f"quiet_matchers_{i.id}"
    st.text_input("Silence everything that matches", value=about(i), key=matchers)
    _button(
        "Silence",
        "silence",
        i.id,
        lambda s, by: silencing.silence(
            s,
            _typed(matchers),
            by,
            reason=_typed(why),
            ends_at=time.time() + parse_duration(_typed(how_long)),
        ),
        False,
        "This and later incidents that match; needs a reason",
    )


def _judge(loaded: Loaded) -> None:
    i, h = loaded.view.incident, loaded.standing.handling
    if h.label:
        show(div(f"Said so far: {LABEL_WORDS[h.label]}.", class_="gf-small gf-soft"))
    kind = f"true_kind_{i.id}"
    for word in LABELS:
        if word == "cause_wrong":
            st.selectbox(
                "It really was",
                ["", *sorted(k for k in KINDS if k != i.kind)],
                format_func=lambda k: kind_title(k) if k else "not known",
                key=kind,
            )
        _button(
            LABEL_WORDS[word].capitalize(),
            word,
            i.id,
            lambda s, by, word=word: labelling.label(  # type: ignore[misc]
                s, i.id, by, label=word, kind=_typed(kind) if word == "cause_wrong" else ""
            ),
            False,
            "Counts in `gustfront backtest --labels` and in the month's report",
        )


def _more(loaded: Loaded) -> None:
    i, h = loaded.view.incident, loaded.standing.handling
    key = f"merge_into_{i.id}"
    st.text_input("Merge into incident", key=key, placeholder="its id, or how it begins")
    _button("Merge", "merge", i.id, lambda s, by: merging.merge(s, i.id, _typed(key), by), False, "")
    for part in loaded.parts:
        _button(
            f"Split off {kind_title(part.kind)} {part.id[:8]}",
            f"split_{part.id}",
            i.id,
            lambda s, by, part=part: merging.split(s, part.id, by),  # type: ignore[misc]
            False,
            "",
        )
    if i.state == "resolved" and loaded.whole is None:
        _button("Open again", "reopen", i.id, lambda s, by: lifecycle.reopen(s, i.id, by), False, "")
    if h.open_again_at is not None and i.state != "resolved":
        _button("Resolve", "resolve", i.id, lambda s, by: lifecycle.resolve(s, i.id, by), False, "")
    if i.state != "resolved":
        _button(
            "Accept as the new normal",
            "accept",
            i.id,
            lambda s, by: lifecycle.accept_new_normal(s, i.id, by),
            False,
            "It ends, and the normal is learnt anew from its onset on",
        )


def _button(
    label: str, act: str, incident: str, do: Do, off: bool, help_: str, *, primary: bool = False
) -> None:
    st.button(
        label,
        key=f"act_{act}_{incident}",
        on_click=_perform,
        args=(act, incident, do, label),
        disabled=off,
        help=help_ or None,
        type="primary" if primary else "secondary",
    )


def _perform(act: str, incident: str, do: Do, label: str) -> None:
    """Do it in the name of who looks; what is said of it is shown once."""
    try:
        by = who.acting(act, f"incident {incident}", ROLE)
        do(writing_store(), by)
    except Forbidden as error:
        st.session_state[FLASH] = ("bad", f"{label}: {error}.")
    except GustfrontError as error:
        st.session_state[FLASH] = ("bad", f"{label}: {error}")
    else:
        queries.incident_changed()
        st.session_state[FLASH] = ("good", f"{label}: done, {clock(time.time())} UTC, as {by.name}.")


def _typed(key: str) -> str:
    return str(st.session_state.get(key) or "")
