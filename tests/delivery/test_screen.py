"""Receivers on the page Data health, run by Streamlit's own test runner."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import queries
from app.storage import forget_stores
from sql.store import Store
from tests.delivery.receiver import Answer, Receiver

PAGE = Path(__file__).resolve().parents[2] / "app" / "app_pages" / "data_health.py"


@pytest.fixture
def page(tmp_path: Path, hook: Receiver, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    config = tmp_path / "gustfront.yaml"
    config.write_text(
        f"""
database: sqlite:///./g.db
receivers:
  - name: <b>bot</b>
    webhook: {{url: "{hook.url}/secret-path"}}
"""
    )
    Store.open(f"sqlite:///{tmp_path / 'g.db'}").close()
    monkeypatch.setenv("GUSTFRONT_CONFIG", str(config))
    monkeypatch.delenv("GUSTFRONT_DATABASE", raising=False)
    forget_stores()
    queries.forget_receivers()
    return AppTest.from_file(str(PAGE), default_timeout=60)


def words(page: AppTest) -> str:
    return " ".join([*(t.value for t in page.text), *(m.value for m in page.markdown)])


def test_a_receiver_that_fails_is_seen_and_a_test_shows_whether_it_works(
    page: AppTest, hook: Receiver
) -> None:
    page.run()
    assert not page.exception
    tables = [d.value for d in page.dataframe if "receiver" in d.value.columns]
    assert [list(t["state"]) for t in tables] == [["unused"]]
    assert "Delivery is not running (it never ran): start gustfront run, or gustfront deliver." in words(page)
    hook.answer = lambda _: Answer(500, "out of order")
    page.button(key="receiver-test").click().run()
    assert not page.exception
    assert "has not taken it: HTTP 500: out of order" in words(page)
    page.run()
    (table,) = [d.value for d in page.dataframe if "receiver" in d.value.columns]
    assert (list(table["state"]), list(table["last error"])) == (["failing"], ["HTTP 500: out of order"])
    assert "secret-path" not in table.to_string()
    time.sleep(0.01)
    hook.answer = lambda _: Answer()
    page.button(key="receiver-test").click().run()
    assert "has taken it." in words(page)
    page.run()
    (table,) = [d.value for d in page.dataframe if "receiver" in d.value.columns]
    assert list(table["state"]) == ["ok"]
