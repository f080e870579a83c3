"""The section for labels on the Quality × load page: drawing a batch, labelling, and what follows from the labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.services import calibration
from app.services.people import Principal
from app.services.wording import stamp
from core.records import OutputRecord
from sql.store import Store
from tests.app.history import END, History, config_file, write
from tests.app.test_pages import ok, open_page, words

HOSTILE_TEXT = "<img src=x onerror=alert(1)> ![t](http://evil.invalid/x) the same again. " * 8


@pytest.fixture
def kept(tmp_path: Path, configured: pytest.MonkeyPatch) -> History:
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    one = OutputRecord("o-0", END - 900, END - 905, "chat", pool="a", replica="a-0", text=HOSTILE_TEXT)
    with Store.open(url) as store:
        write(store)
        hard = {"verdict": "hard", "rules": {"loop_long": 8.0}}
        rows = [replace(one, id=f"o-{i}", ts=END - 900 + i, **(hard if i < 3 else {})) for i in range(30)]
        store.add_outputs(rows)
    history = History(url, config_file(tmp_path, url))
    configured.setenv("GUSTFRONT_CONFIG", str(history.config))
    return history


def test_a_batch_is_drawn_and_labelled_on_the_page_and_the_text_is_never_markup(kept: History) -> None:
    app = open_page("quality", as_of=stamp(END))
    ok(app)
    assert "Nothing was drawn yet" in words(app)
    next(b for b in app.button if b.label == "Draw 200 outputs of this range").click().run()
    ok(app)
    assert "Output 1 of 30" in words(app)
    assert any(c.value == HOSTILE_TEXT for c in app.code)
    assert "onerror" not in words(app)
    next(b for b in app.button if b.label == "Fine").click().run()
    ok(app)
    assert "Output 2 of 30" in words(app)
    with Store.open(kept.url) as store:
        ((batch, _, n),) = store.rating_batches()
        assert n == 30
        assert [r.label for r in store.output_ratings(batch)] == ["fine"]
        assert [a.action for a in store.audit(limit=50)].count("label output") == 1


def test_agreement_stands_beside_the_labels(kept: History) -> None:
    with Store.open(kept.url) as store:
        calibration.open_batch(store, "b", END - 1000, END, END)
        for q in store.rating_queue("b"):
            for who in ("ann", "bob"):
                label = "degraded" if q.stratum == "hard" else "fine"
                calibration.rate(store, Principal(who, "admin"), "b", q.output, who, label, END)
    app = open_page("quality", as_of=stamp(END))
    ok(app)
    text = words(app)
    assert "ann and bob: kappa 1.00" in text
    assert "Verdict hard: 3 of 3 labelled degraded" in text
    assert "Recall of the hard rules: 100 %" in text
