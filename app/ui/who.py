"""Who looks at a page and acts on it: told by the gate at the start of the session, judged by the rules in force at each run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app import auth, oidc
from app.services import audit, texts
from app.services.people import (
    LOCAL,
    Forbidden,
    Identity,
    Principal,
    may,
    may_read_texts,
    principal_of_identity,
    require,
)
from app.storage import configuration, writing_store
from app.ui.html import div, show

SESSION_SECONDS = 12 * 3600.0
LOOK_SECONDS = 600.0
"""A text that stays on a page, which runs again and again, is one look."""


class NotSignedIn(Forbidden):
    """There is nobody, or no longer: a sign-in ends."""


def identity() -> Identity:
    """Who this session belongs to. NotSignedIn where the gate let nobody in, or the sign-in is over."""
    rules = configuration().auth
    value = st.context.headers.get(auth.HEADER)
    who = auth.opened(value) if value else None
    if who is None or who.via != ("local" if rules.mode == "none" else rules.mode):
        if rules.mode == "none":
            return Identity(LOCAL.name)
        raise NotSignedIn("nobody is signed in")
    lasts = rules.oidc.session if rules.mode == "oidc" and rules.oidc else SESSION_SECONDS
    if rules.mode != "none" and time.time() - who.since >= lasts:
        raise NotSignedIn("the sign-in is over")
    return who


def current() -> Principal:
    """The principal of this page's session. Forbidden where there is none, or no rule gives a role (any more)."""
    rules = configuration().auth
    if rules.mode == "none":
        if rules.otherwise is None:
            raise Forbidden("auth.default_role is nobody")
        return auth.local(rules.otherwise)
    who = identity()
    found = principal_of_identity(who, rules)
    if found is None:
        raise Forbidden(f"{who.name} is signed in, but no rule gives a role (auth.roles)")
    return found


def can(role: str) -> bool:
    """Whether the viewer has a role: a page shows what somebody cannot do, disabled, with the reason (:func:`why_not`)."""
    return may(current(), role)


def why_not(role: str) -> str:
    """The reason for a disabled control, empty where it is not disabled."""
    me = current()
    return "" if may(me, role) else f"Needs the role {role}; you are {me.role}."


def acting(action: str, subject: str, role: str, detail: Mapping[str, Any] | None = None) -> Principal:
    """The viewer, about to do something: checked for ``role``, written to the audit log. Forbidden, and written too, if not."""
    me = current()
    allowed = may(me, role)
    audit.record(writing_store(), me, action, subject, origin=_origin(), allowed=allowed, detail=detail)
    require(me, role)
    return me


def sees_texts() -> bool:
    """Whether the viewer may read texts of model outputs."""
    return may_read_texts(current(), configuration().auth)


def output_text(output: str) -> str | None:
    """The text of one output; None where it was not kept. A look is logged once, not at each run of the page. Forbidden."""
    looks: dict[str, tuple[float, str | None]] = st.session_state.setdefault("_texts_seen", {})
    known = looks.get(output)
    if known is not None and time.time() - known[0] < LOOK_SECONDS and sees_texts():
        return known[1]
    text = texts.read_text(writing_store(), current(), configuration().auth, output, origin=_origin())
    for old in [k for k, v in looks.items() if time.time() - v[0] >= LOOK_SECONDS]:
        del looks[old]
    # A page may show two texts at once, a sample and one to label; more are not held.
    while len(looks) > 1:
        del looks[min(looks, key=lambda k: looks[k][0])]
    looks[output] = (time.time(), text)
    return text


def badge() -> None:
    """In the sidebar: who is signed in, with which role, and the way out. Nothing where there is no authentication."""
    me, mode = current(), configuration().auth.mode
    if mode == "none":
        return
    with st.sidebar:
        show(div(me.name, class_="gf-small"), div(me.role, class_="gf-small gf-soft"))
        if mode == "oidc":
            st.button("Sign out", icon=":material/logout:", on_click=st.logout, type="tertiary")


def refusal(error: Forbidden) -> None:
    """A page for somebody who may not see one."""
    over = isinstance(error, NotSignedIn)
    with st.container(border=True, gap="xsmall"):
        text = str(error)
        show(
            div("Sign in again" if over else "No entry", class_="gf-title"),
            div(f"{text[:1].upper()}{text[1:]}.", class_="gf-p"),
        )
        if over and configuration().auth.mode == "oidc":
            st.link_button("Sign in", oidc.LOGIN)
        elif over:
            show(div("Load this page again.", class_="gf-small gf-soft"))
        else:
            show(div(error.fix[:1].upper() + error.fix[1:] + ".", class_="gf-small gf-soft"))


def _origin() -> str:
    return identity().origin
