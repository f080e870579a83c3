"""Each page in Streamlit's own test runner: an empty database, a storm, hostile names."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.asgi import SCRIPT
from app.services.wording import stamp
from tests.app.history import END, STORM, History

PAGES = {
    "now": None,
    "incident": "app_pages/incident.py",
    "slos": "app_pages/slos.py",
    "quality": "app_pages/quality.py",
    "health": "app_pages/data_health.py",
    "kv": "app_pages/kv_cache.py",
    "replicas": "app_pages/replicas.py",
    "explore": "app_pages/explore.py",
    "settings": "app_pages/settings.py",
}


def open_page(name: str, **query: str) -> AppTest:
    """Run a page with query parameters as if its URL had been opened."""
    app = AppTest.from_file(str(SCRIPT), default_timeout=90)
    for key, value in query.items():
        app.query_params[key] = value
    app.run()
    page = PAGES[name]
    if page is not None:
        app.switch_page(page)
        for key, value in query.items():
            app.query_params[key] = value
        app.run()
    return app


def markup(app: AppTest) -> str:
    """Everything put on the page as HTML, without the style rules."""
    return "\n".join(e.proto.body for e in app.get("html") if not e.proto.body.lstrip().startswith("<style"))


def words(app: AppTest) -> str:
    """The same as a person reads it."""
    text = re.sub(r"<[^>]+>", " ", markup(app))
    return re.sub(r"\s+", " ", text.replace("\u00a0", " "))


def figures(app: AppTest) -> list[dict[str, Any]]:
    """The figures on the page."""
    return [json.loads(e.proto.spec) for e in app.get("plotly_chart")]


def ok(app: AppTest) -> None:
    assert not app.exception, [e.value for e in app.exception]


@pytest.mark.parametrize("name", PAGES)
def test_an_empty_database_shows_no_error(
    name: str, configured: pytest.MonkeyPatch, empty_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(empty_history.config))
    ok(open_page(name))


def test_the_first_page_of_an_empty_installation_says_in_three_lines_how_to_get_data(
    configured: pytest.MonkeyPatch, empty_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(empty_history.config))
    app = open_page("now")
    text = words(app)
    assert [line for line in ("1. ", "2. ", "3. ") if line in text] == ["1. ", "2. ", "3. "]
    assert "Prometheus" in text
    assert "gustfront run" in text
    assert "prometheus:" in app.code[0].value
    assert "scrape:" in app.code[1].value


def test_a_database_that_is_not_there_is_a_note_with_a_fix_and_no_traceback(
    configured: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    path = tmp_path / "gustfront.yaml"
    path.write_text(f"database: sqlite:///{tmp_path / 'absent.db'}\n")
    configured.setenv("GUSTFRONT_CONFIG", str(path))
    app = open_page("now")
    ok(app)
    assert "absent.db" in words(app)


def test_a_wrong_configuration_is_a_note_that_names_path_and_fix(
    configured: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    path = tmp_path / "gustfront.yaml"
    path.write_text("slo: []\n")
    configured.setenv("GUSTFRONT_CONFIG", str(path))
    app = open_page("now")
    ok(app)
    assert "slo" in words(app)


def test_the_now_page_leads_with_the_storm_and_its_numbers(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("now", as_of=stamp(END))
    ok(app)
    text = words(app)
    assert "showing history as of 2026-09-21 16:00 UTC" in text
    assert "5 of 5 replicas seen" in text
    assert "KV eviction storm on coder: coding-agent TTFT p99 is" in text
    assert "objective missed" in text
    assert text.index("KV eviction storm on coder") < text.index("ITL p99")
    cards = re.findall(r'class="gf-name" title="([^"]+)"', markup(app))
    assert cards[0] == "coding-agent"
    assert set(cards) == {"coding-agent", "chat", "batch"}
    assert "20 (2.4–72)" in text  # 2 of 1,000 sampled chat answers


def test_missing_numbers_are_named_and_never_zero(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("now", as_of=stamp(END))
    rows = dict(
        re.findall(
            r'title="([^"]+)">.*?degraded /10k</span></span><span class="gf-v">([^<]+)</span>',
            markup(app),
            re.S,
        )
    )
    assert "not exported" in rows.values()  # nobody sampled coding-agent or batch


def test_before_anybody_was_told_there_is_no_incident(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("now", as_of=stamp(STORM))
    ok(app)
    assert "No open incident" in words(app)
    assert "KV eviction storm" not in words(app)


def test_the_pool_filter_leaves_the_other_pools_out(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("now", as_of=stamp(END), pool="mixed")
    ok(app)
    assert set(re.findall(r'class="gf-name" title="([^"]+)"', markup(app))) == {"chat", "batch"}
    assert "2 of 2 replicas seen" in words(app)


def test_the_incident_page_has_its_parts_in_the_order_of_need(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("incident", id="storm-1", as_of=stamp(END))
    ok(app)
    text = words(app)
    order = [
        "KV eviction storm on coder: coding-agent TTFT p99 is",
        "Blast radius",
        "Changed in the last hour",
        "First safe action",
        "Tomorrow:",
        "Cause",
        "in the order it happened",
        "Evidence",
        "Ruled out",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "deploy: release 42" in text
    assert "No restart, no scaling, no flag recorded" in text
    assert "acme" in text
    assert "opened: page" in text


def test_an_unknown_incident_says_so(configured: pytest.MonkeyPatch, storm_history: History) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("incident", id="nothing", as_of=stamp(END))
    ok(app)
    assert "No such incident" in words(app)


def test_the_evidence_draws_affected_replicas_red_and_the_control_group_grey(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    from app.ui.style import GREY, RED

    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("incident", id="storm-1", as_of=stamp(END))
    lines = [t for f in figures(app) for t in f["data"] if t["type"] == "scatter"]
    assert lines
    colours = {(t["name"], t["line"]["color"]) for t in lines}
    assert colours == {("coder-0", RED), ("coder-1", RED), ("coder-2", GREY)}


def test_the_slos_page_shows_interval_count_window_and_how_it_was_computed(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("slos", as_of=stamp(END))
    ok(app)
    text = words(app)
    assert "measured at the gateway" in text
    assert "measured at the engine" in text
    assert "missed so far, 28 d" in text, "100 minutes of 28 days were seen"
    assert re.search(r"n \d[\d,]* · over \d+ min", text)
    explained = [t.value for t in app.text]
    assert len(explained) == 15
    assert any("good ÷ (good + bad)" in t for t in explained)


def test_data_health_lists_targets_signals_flags_and_problems(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("health", as_of=stamp(END))
    ok(app)
    problems, targets, missing, found = (d.value for d in app.dataframe)
    assert sorted(targets["replica"]) == ["coder-0", "coder-1", "coder-2", "mixed-0", "mixed-1"]
    assert set(targets["state"]) == {"up"}
    assert missing["flag or setting that exports it"].str.contains("--").any()
    assert "ttft_seconds" in set(found["signal"])
    assert list(problems["what"]) == ["le_order"]


@pytest.mark.parametrize("name", PAGES)
def test_hostile_names_never_reach_markup_or_markdown(
    name: str, configured: pytest.MonkeyPatch, hostile_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(hostile_history.config))
    app = open_page(name, id="storm-1", as_of=stamp(END))
    ok(app)
    ours = re.compile(
        r'<img class="gf-img" alt="[^"<>]*" src="data:image/svg\+xml;base64,([A-Za-z0-9+/=]*)">'
    )
    assert not any(b"evil" in b64decode(data) for data in ours.findall(markup(app)))
    html = ours.sub("", markup(app))
    assert "<img" not in html
    # escaped where it is shown: tables of Data health are no markup, the outputs of this history have harmless names
    assert "&lt;img" in html or name in ("health", "quality")
    for kind in ("markdown", "caption", "title", "header", "subheader", "metric", "error", "warning", "info"):
        assert not any("evil.invalid" in str(e.proto) for e in app.get(kind)), kind
    for figure in figures(app):
        assert "<img" not in json.dumps(figure)


def test_a_custom_range_and_a_mistyped_time_are_understood(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    query = {"range": "custom", "from": stamp(END - 1800), "as_of": stamp(END)}
    app = open_page("now", **query)
    ok(app)
    assert "15:30–2026-09-21 16:00 UTC" in words(app)
    wrong = open_page("now", as_of="yesterday")
    ok(wrong)
    assert "Not a time" in wrong.error[0].value
    assert "showing history as of 2026-09-21 16:00 UTC" in words(wrong)


def test_the_kv_cache_page_answers_first_and_names_the_flags_that_would_warn_earlier(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("kv", as_of=stamp(END))
    ok(app)
    text = words(app)
    assert "The cache is what is wrong on coder." in text
    assert "--kv-cache-metrics" in text
    assert "Open the incident" in [link.proto.label for link in app.get("page_link")]


def test_the_replicas_page_puts_the_oddest_first_and_compares_two_from_the_address(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("replicas", as_of=stamp(END), replica="coder / coder-2", other="coder / coder-0")
    ok(app)
    assert list(app.dataframe[0].value["replica"][:2]) == ["coder-0", "coder-1"]
    text = words(app)
    assert "2 of 5 replicas stand out" in text
    assert "coder / coder-2" in text
    assert "coder / coder-0" in text


def test_explore_draws_two_signals_side_by_side_from_the_address(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page(
        "explore",
        as_of=stamp(END),
        signal="ttft_seconds",
        signal2="kv_cache_usage_ratio",
        by2="replica",
        pool="coder",
    )
    ok(app)
    first, second = figures(app)
    assert {trace["name"] for trace in first["data"] if "name" in trace} == {"coding-agent"}
    assert {trace["name"] for trace in second["data"]} == {f"coder / coder-{i}" for i in range(3)}
    # The storm is shaded, the release before it dotted.
    assert {shape["type"] for shape in first["layout"]["shapes"]} == {"rect", "line"}


def test_settings_show_the_file_and_what_is_wrong_with_it_now(
    configured: pytest.MonkeyPatch, storm_history: History
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    app = open_page("settings", as_of=stamp(END))
    ok(app)
    assert str(storm_history.config) in words(app)
    assert "configuration valid" in words(app)
    assert any(c.value.endswith(" check") for c in app.code)
