"""The Settings page: everything that runs, nothing that is secret, and what is wrong with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.services import settings_page
from core.config import Config, load_config
from core.kinds import KINDS
from sql.people import TokenRow
from sql.store import Store
from tests.app.history import History

SECRET = "hunter2"


def test_the_page_holds_the_running_configuration(storm_history: History) -> None:
    config = load_config(storm_history.config)
    with Store.open(storm_history.url, read_only=True) as store:
        page = settings_page.load(store, config)
    assert page.file == str(storm_history.config)
    assert [c[0] for c in page.classes] == ["coding-agent", "chat", "batch"]
    assert page.objectives[0][:2] == ("coding-agent-ttft", "coding-agent")
    assert page.units == (("coder", 3, "glm-5, vllm"), ("mixed", 2, "glm-5, sglang"))
    assert {d.kind for d in page.detectors} <= set(KINDS)
    assert page.disk.used > 0
    assert page.disk.free is not None
    assert page.problems == ()


def test_no_secret_is_ever_on_the_page(
    tmp_path: Path, storm_history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    file = tmp_path / "gustfront.yaml"
    file.write_text(
        f"""
database: {storm_history.url}
sources:
  - prometheus: {{url: "http://prometheus:9090", headers: {{X-Key: "${{SECRET}}"}}}}
  - scrape: {{targets: ["http://engine-0:8000/metrics?token={SECRET}"]}}
intake: {{tokens: ["{"ab" * 32}"]}}
"""
    )
    config = load_config(file)
    with Store.open(storm_history.url, read_only=True) as store:
        page = settings_page.load(store, config)
    text = repr(page)
    assert SECRET not in text
    assert "ab" * 32 not in text
    assert "1 set, not shown" in text
    assert "http://engine-0:8000" in text


def test_api_tokens_are_listed_without_what_could_be_used(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tokens.db'}"
    with Store.open(url) as store:
        store.add_token(TokenRow("gf1", "grafana", "d" * 64, "viewer", ("read",), 100.0, "ops"))
        page = settings_page.load(store, Config.built_in())
    assert page.tokens == (("grafana", "gf1", "viewer", "read", "valid", "never"),)
    assert "d" * 64 not in repr(page)


def test_of_an_address_only_scheme_and_host_are_shown() -> None:
    assert (
        settings_page._address("https://hooks.slack.example/services/T0/B0/xyz")
        == "https://hooks.slack.example/…"
    )
    assert settings_page._address("http://u:p@host:9093") == "http://host:9093"
    assert settings_page._address("postgresql://u:p@db/g") == "postgresql://u:***@db/g"
    assert settings_page._address("plain text") == "plain text"


def test_a_file_that_was_broken_since_is_named_with_place_and_fix(
    tmp_path: Path, storm_history: History
) -> None:
    file = tmp_path / "gustfront.yaml"
    file.write_text(f"database: {storm_history.url}\n")
    config = load_config(file)
    file.write_text(f"database: {storm_history.url}\nretention: {{frames: soon}}\nclases: []\n")
    found = settings_page.problems(config)
    assert {p.where for p in found} == {"retention.frames", "clases"}
    assert all(p.fix for p in found)


def test_commands_name_the_file_in_a_form_that_a_shell_takes(tmp_path: Path) -> None:
    file = tmp_path / "my settings.yaml"
    file.write_text("slos: []\n")
    commands = {c: w for w, c in settings_page.commands(load_config(file), 1_790_000_000.0)}
    assert f"gustfront --config '{file}' check" in commands
    assert any("--end 2026-09-21T14:13:20Z" in c for c in commands)


def test_sizes_are_said_in_their_largest_unit() -> None:
    assert [settings_page.size(n) for n in (None, 12, 3_400, 9.12e8, 2.3e9)] == [
        "–", "12\u00a0B", "3.4\u00a0kB", "912\u00a0MB", "2.3\u00a0GB",
    ]  # fmt: skip
