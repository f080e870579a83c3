"""Tokens and the audit log on the command line: every act of a person leaves a line."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from sql.store import Store
from tests.app.history import STORM, storm

FOLDER_RUNS = CliRunner()


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'g.db'}"
    with Store.open(url) as store:
        store.save_incident(storm())
    return url


def run(database: str, *words: str, code: int = 0) -> Any:
    done = FOLDER_RUNS.invoke(cli, ["--database", database, *words])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if "--json" in words else done


def test_a_token_is_made_listed_and_revoked_and_never_shown_again(database: str) -> None:
    made = run(database, "tokens", "create", "gateway", "--scopes", "outputs:write, outcomes:write", "--json")
    assert made["token"].startswith(made["prefix"] + "_")
    assert (made["role"], made["scopes"], made["state"]) == (
        "viewer",
        ["outcomes:write", "outputs:write"],
        "in force",
    )
    (listed,) = run(database, "tokens", "list", "--json")
    assert made["token"] not in json.dumps(listed)
    assert listed["made_by"] == getpass.getuser()
    assert made["token"] not in run(database, "tokens", "list").output
    run(database, "tokens", "revoke", "gateway")
    assert run(database, "tokens", "list", "--json")[0]["state"] == "revoked"
    assert "is revoked already" in run(database, "tokens", "revoke", "gateway", code=2).output
    lines = run(database, "audit", "list", "--json")
    assert [(a["action"], a["subject"]) for a in lines] == [
        ("revoke token", made["prefix"]),
        ("create token", made["prefix"]),
    ]
    assert made["token"] not in json.dumps(lines)


@pytest.mark.parametrize(
    ("expires", "state"), [("never", None), ("90d", "Z"), ("2099-01-31", "2099-01-31T00:00:00Z")]
)
def test_a_token_ends_when_it_was_told_to(database: str, expires: str, state: str | None) -> None:
    made = run(database, "tokens", "create", "x", "--scopes", "slo:read", "--expires", expires, "--json")
    assert made["expires_at"] is None if state is None else made["expires_at"].endswith(state)


def test_an_end_that_is_none_is_named(database: str) -> None:
    done = run(database, "tokens", "create", "x", "--scopes", "slo:read", "--expires", "soon", code=2)
    assert "--expires" in done.output
    assert "90d, 2027-01-31 or never" in done.output.replace("\n", " ")


ACTS = {
    "acknowledged": ["incidents", "ack", "storm-1", "--by", "ann"],
    "note": ["incidents", "note", "storm-1", "looking"],
    "silence": ["incidents", "silence", 'pool="coder"', "--for", "1h", "--reason", "test"],
    "mute": ["incidents", "mute", 'pool="coder"', "--days", "sun", "--start", "02:00", "--end", "04:00", "--reason", "t"],
    "exclude": ["slo", "exclude", "--start", str(STORM), "--end", str(STORM + 60), "--reason", "test"],
    "mark": ["mark", "v2", "--kind", "deploy"],
    "erase": ["erase", "--tenant", "acme"],
}  # fmt: skip


@pytest.mark.parametrize("action", ACTS)
def test_every_act_of_a_person_leaves_a_line(database: str, action: str) -> None:
    run(database, *ACTS[action])
    (line,) = run(database, "audit", "list", "--json")
    assert (line["action"], line["who"], line["via"]) == (action, getpass.getuser(), "command")
    assert "acme" not in json.dumps(line)
    if action == "acknowledged":
        assert line["detail"]["in_the_name_of"] == "ann"
    assert action in run(database, "audit", "list").output


def test_the_log_is_narrowed_by_who_what_and_when(database: str) -> None:
    for words in (ACTS["mark"], ACTS["erase"], ACTS["mark"]):
        run(database, *words)
    assert len(run(database, "audit", "list", "--action", "mark", "--json")) == 2
    assert run(database, "audit", "list", "--who", "nobody", "--json") == []
    assert len(run(database, "audit", "list", "--limit", "1", "--json")) == 1
    assert run(database, "audit", "list", "--end", "2020-01-01", "--json") == []
    assert "Nothing in the audit log." in run(database, "audit", "list", "--end", "2020-01-01").output
