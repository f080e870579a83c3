"""What people do on the incident page, in Streamlit's own test runner, and what Now says of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.services import lifecycle
from app.services.people import Principal
from app.services.wording import stamp
from sql.store import Store
from tests.app.conftest import configured
from tests.app.history import END, STORM, History, make
from tests.app.history import storm as an_incident
from tests.app.test_pages import markup, ok, open_page, words

__all__ = ["configured"]
MARA = Principal("mara", "responder")


@pytest.fixture
def storm(tmp_path: Path, configured: pytest.MonkeyPatch) -> History:
    """A history of its own, since people write into it."""
    history = make(tmp_path)
    configured.setenv("GUSTFRONT_CONFIG", str(history.config))
    return history


def page() -> AppTest:
    app = open_page("incident", id="storm-1", as_of=stamp(END))
    ok(app)
    return app


def press(app: AppTest, act: str) -> AppTest:
    next(b for b in app.button if b.key == f"act_{act}_storm-1").click()
    app.run()
    ok(app)
    return app


def type_in(app: AppTest, key: str, text: str) -> None:
    boxes: list[Any] = [*app.text_input, *app.text_area]
    next(b for b in boxes if b.key == f"{key}_storm-1").set_value(text)


def log(history: History) -> list[tuple[str, str, str]]:
    with Store.open(history.url, read_only=True) as store:
        return [(e.action, e.text, e.who) for e in store.incident_log("storm-1")]


def test_one_click_acknowledges_and_another_takes_it_back(storm: History) -> None:
    app = press(page(), "ack")
    assert "acknowledged by local" in words(app)
    assert next(s.value for s in app.success).startswith("Acknowledge: done")
    assert log(storm)[-1] == ("acknowledged", "", "local")
    app = press(app, "unack")
    assert "acknowledged by" not in words(app)
    assert log(storm)[-1][0] == "unacknowledged"


def test_now_says_who_has_it(storm: History) -> None:
    with Store.open(storm.url) as store:
        lifecycle.acknowledge(store, "storm-1", MARA)
        lifecycle.assign(store, "storm-1", MARA, to="inference")
    shown = words(open_page("now", as_of=stamp(END)))
    assert "acknowledged by mara" in shown
    assert "assigned to inference" in shown


def test_a_note_is_text_wherever_it_is_shown(storm: History) -> None:
    app = page()
    type_in(app, "note_text", "<img src=x onerror=alert(1)> drained it")
    app = press(app, "note")
    assert log(storm)[-1] == ("note", "<img src=x onerror=alert(1)> drained it", "local")
    assert "<img" not in "".join(e.proto.body for e in app.get("html"))
    assert "drained it" in words(app)


def test_what_it_was_is_said_with_the_kind_that_it_really_was(storm: History) -> None:
    app = page()
    next(s for s in app.selectbox if s.key == "true_kind_storm-1").set_value("capacity_shortfall")
    press(app, "cause_wrong")
    with Store.open(storm.url, read_only=True) as store:
        handling = store.handlings(["storm-1"])["storm-1"]
    assert (handling.label, handling.true_kind) == ("cause_wrong", "capacity_shortfall")


def test_a_silence_needs_a_reason_and_then_holds_for_as_long_as_was_said(storm: History) -> None:
    app = press(page(), "silence")
    assert "reason" in app.error[0].value
    type_in(app, "quiet_why", "known, fixed tomorrow")
    type_in(app, "quiet_long", "30m")
    began = time.time()
    press(app, "silence")
    with Store.open(storm.url, read_only=True) as store:
        (made,) = store.silences()
    assert made.matchers == 'kind="kv_eviction_storm",pool="coder"'
    assert (made.author, made.reason) == ("local", "known, fixed tomorrow")
    assert made.ends_at - began == pytest.approx(1800, abs=60)


@pytest.mark.parametrize(
    ("key", "text", "act", "told"),
    [
        ("quiet_long", "soon", "snooze", "soon"),
        ("quiet_matchers", 'pool=~"["', "silence", "pool"),
        ("merge_into", "no-such", "merge", "no such incident"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    key: str, text: str, act: str, told: str, storm: History
) -> None:
    app = page()
    before = log(storm)
    type_in(app, "quiet_why", "reason")
    type_in(app, key, text)
    app = press(app, act)
    assert told in app.error[0].value
    assert log(storm) == before


def test_who_may_only_look_sees_the_buttons_disabled_with_the_reason(
    storm: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = storm.config.read_text() + "\nauth: {mode: none, default_role: viewer}\n"
    config = tmp_path / "viewer.yaml"
    config.write_text(text)
    monkeypatch.setenv("GUSTFRONT_CONFIG", str(config))
    app = page()
    button = next(b for b in app.button if b.key == "act_ack_storm-1")
    assert button.disabled
    assert "responder" in button.help


def test_an_earlier_one_is_linked_with_what_ended_it_and_what_is_alike(storm: History) -> None:
    with Store.open(storm.url) as store:
        store.save_incident(
            an_incident(id="before", state="resolved", started_at=STORM - 86400, ended_at=STORM - 86000)
        )
        store.log_incident("before", STORM - 85000, "note", "<img src=x> rolled back", "mara")
    text = markup(open_page("incident", id="storm-1", as_of=stamp(END)))
    assert 'href="/incident?id=before"' in text
    assert "mara noted: &lt;img src=x&gt; rolled back." in text
    assert "same kind, same pool coder" in text
