"""What every page has around it: page settings, style, and an honest page where the data cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app.ui import empty, style
from core.errors import ConfigError, GustfrontError, InputError, SourceError

_HERE = Path(__file__).resolve().parent
ICON, LOGO = _HERE / "icon.png", _HERE / "logo.svg"


def begin() -> None:
    """First calls of a run."""
    # A material icon as page icon would be fetched from the internet: ours is a file.
    st.set_page_config(
        page_title="Gustfront", page_icon=str(ICON), layout="wide", initial_sidebar_state="expanded"
    )
    st.logo(str(LOGO), size="medium")
    style.inject()


@contextmanager
def guard() -> Iterator[None]:
    """Errors raised on purpose become a note that says what to do, not a traceback."""
    try:
        yield
    except ConfigError as error:
        empty.unavailable(f"{error.path}: {error.problem}", error.fix)
    except (InputError, SourceError) as error:
        empty.unavailable(str(error), error.fix)
    except GustfrontError as error:
        empty.unavailable(str(error))


def run(page: StreamlitPage) -> None:
    """Run the page, guarded."""
    with guard():
        page.run()
