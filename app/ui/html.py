"""Small pieces of HTML whose every variable part is escaped: the only way in which text from targets gets into markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Literal

import streamlit as st

Tone = Literal["red", "amber", "green", "grey", "blue"]


class Markup(str):
    """HTML that is already safe."""

    __slots__ = ()


def esc(value: object) -> Markup:
    """``value`` as text: escaped unless it is already :class:`Markup`."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def tag(name: str, *children: object, class_: str = "", title: str = "") -> Markup:
    """One element; children are escaped."""
    attributes = (f' class="{esc(class_)}"' if class_ else "") + (f' title="{esc(title)}"' if title else "")
    return Markup(f"<{name}{attributes}>{''.join(esc(c) for c in children)}</{name}>")


def div(*children: object, class_: str = "", title: str = "") -> Markup:
    """A block."""
    return tag("div", *children, class_=class_, title=title)


def span(*children: object, class_: str = "", title: str = "") -> Markup:
    """An inline element."""
    return tag("span", *children, class_=class_, title=title)


def bold(text: object) -> Markup:
    """Bold text."""
    return tag("b", text)


def chip(text: object, tone: Tone = "grey", title: str = "") -> Markup:
    """A small label; ``red`` only where an objective is missed."""
    return span(text, class_=f"gf-chip gf-{tone}", title=title)


def chips(items: Iterable[Markup]) -> Markup:
    """A row of chips."""
    return div(*items, class_="gf-chips")


def rows(pairs: Sequence[tuple[object, object]]) -> Markup:
    """A two-column list: name, value."""
    return div(
        *(Markup(f"{span(name, class_='gf-k')}{span(value, class_='gf-v')}") for name, value in pairs),
        class_="gf-rows",
    )


def table(head: Sequence[object], body: Sequence[Sequence[object]], *, class_: str = "") -> Markup:
    """A quiet table; cells are escaped."""
    top = tag("thead", tag("tr", *(tag("th", c) for c in head)))
    lines = tag("tbody", *(tag("tr", *(tag("td", c) for c in row)) for row in body))
    return div(tag("table", top, lines, class_=f"gf-table {class_}".strip()), class_="gf-scroll")


def show(*parts: Markup) -> None:
    """Put markup on the page."""
    st.html(Markup("".join(esc(p) for p in parts)))
