"""The command line as a stranger uses it: what is wrong is named with its fix, exit codes hold, never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.commands import context
from app.commands.context import settings
from core.incidents import Incident
from core.records import Event
from sql.store import Store

ROOT = Path(__file__).resolve().parents[2]
RANGE = ["--start", "2026-09-21T14:00Z", "--end", "2026-09-21T15:00Z"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Gustfront = Callable[..., Done]


@pytest.fixture
def gustfront(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Gustfront:
    """Run the command line in an empty folder of its own, in this process."""
    monkeypatch.chdir(tmp_path)
    for name in ("GUSTFRONT_CONFIG", "GUSTFRONT_DATABASE", context.TRACEBACK):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "config", None)
    monkeypatch.setattr(settings, "database", None)

    def run(*words: str) -> Done:
        result = CliRunner().invoke(cli, list(words))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    # Rich's consoles hold on to the streams of the time at which they were made, unless told to look each time.
    monkeypatch.setattr(context.stderr, "_file", None)
    monkeypatch.setattr(context.stdout, "_file", None)
    return run


WRONG_ARGUMENTS = {
    "a time in words": (["backfill", "--start", "yesterday", "--end", "now"], "--start", "yesterday"),
    "milliseconds": (["backtest", "--start", "1789999200000", "--end", "1"], "--start", "1789999200000"),
    "an end that is no time": (["incidents", "--end", "soon"], "--end", "soon"),
    "an end before the start": (["backtest", "--start", "20", "--end", "10"], "--end", "10"),
    "incidents of no time": (["incidents", "--start", "20", "--end", "10"], "--end", "10"),
    "a lag without a unit": (["backtest", *RANGE, "--ingest-lag", "30"], "--ingest-lag", "30"),
    "a mark at no time": (["mark", "hello", "--at", "noon"], "--at", "noon"),
    "a server that is no URL": (["backfill", *RANGE, "--prometheus", "prometheus:9090"], "--prometheus", "prometheus:9090"),
    "a server of another scheme": (["backfill", *RANGE, "--prometheus", "ftp://x"], "--prometheus", "ftp://x"),
    "no server at all": (["backfill", *RANGE], "--prometheus", "0 Prometheus sources"),
    "half a selector": (
        ["backfill", *RANGE, "--prometheus", "http://127.0.0.1:1", "--selector", "{job="],
        "--selector",
        "{job=",
    ),
    "a database of another kind": (["--database", "mysql://u@h/x", "incidents"], "--database", "mysql://u@h/x"),
    "no database URL": (["--database", "x.db", "mark", "hi"], "--database", "x.db"),
    "no such configuration": (["--config", "nope.yaml", "check"], "--config", "nope.yaml"),
    "a folder as configuration": (["--config", ".", "check"], "--config", "'.'"),
    "a port beyond ports": (["serve", "--port", "99999"], "--port", "65535"),
    "everybody as audience": (["serve", "--host", "0.0.0.0"], "auth is none", "--insecure-listen"),
    "everybody as audience of a demonstration": (["demo", "--host", "::"], "auth is none", "--insecure-listen"),
    "port zero": (["run", "--port", "0"], "--port", "1"),
    "an option that is none": (["incidents", "--jsn"], "--jsn", "--json"),
    "a command that is none": (["incident"], "incident", "incidents"),
    "no file": (["import-requests", "nope.jsonl"], "nope.jsonl", "no such file"),
    "a folder as file": (["import-outputs", "."], ".", "directory"),
    "neither file nor URL": (["doctor", "localhost:8000"], "localhost:8000", "http://host:port/metrics"),
    "an empty subject": (["doctor", ""], "the subject", "http://host:port/metrics"),
    "a URL without a host": (["doctor", "http://"], "http://", "host:port"),
    "a URL that is broken": (["doctor", "http://[::1"], "http://[::1", "host:port"),
    "a URL with a port beyond ports": (["doctor", "http://127.0.0.1:99999/x"], "99999", "host:port"),
    "a URL with a password": (["doctor", "http://u:pw@127.0.0.1/x"], "credentials", "token_file"),
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS.keys())
def test_a_wrong_argument_is_named_with_what_it_was_and_leaves_with_2(
    gustfront: Gustfront, words: tuple[list[str], str, str]
) -> None:
    arguments, name, value = words
    done = gustfront(*arguments)
    assert done.code == 2, done
    text = " ".join(done.err.replace("│", " ").split())
    assert name in text
    assert value in text
    assert not done.out
    assert "Traceback" not in done.err


def test_a_password_in_an_argument_is_not_repeated(gustfront: Gustfront) -> None:
    for words in (
        ["--database", "mysql://user:hunter2@h/x", "incidents"],
        ["--database", "postgresql://user:hunter2@127.0.0.1:1/x", "incidents"],
        ["backfill", *RANGE, "--prometheus", "http://user:hunter2@h:9090"],
        ["doctor", "http://user:hunter2@127.0.0.1/metrics"],
    ):
        done = gustfront(*words)
        assert done.code in (2, 3)
        assert "hunter2" not in done.err + done.out, words


MACHINE = {
    "a server that is away": (["backfill", *RANGE, "--prometheus", "http://127.0.0.1:1"], "Connection refused"),
    "a PostgreSQL that is away": (["--database", "postgresql://u@127.0.0.1:1/x", "incidents"], "start it"),
    "a folder that is not there": (["--database", "sqlite:///no/where/x.db", "mark", "hi"], "mkdir"),
    "a database that is not there": (["incidents"], "does not exist"),
    "a host that is not this one": (["serve", "--insecure-listen", "--host", "203.0.113.5"], "203.0.113.5"),
}  # fmt: skip


@pytest.mark.parametrize("words", MACHINE.values(), ids=MACHINE.keys())
def test_what_the_machine_lacks_is_named_with_a_fix_and_leaves_with_3(
    gustfront: Gustfront, words: tuple[list[str], str]
) -> None:
    done = gustfront(*words[0])
    assert done.code == 3, done
    assert words[1] in done.err
    assert "Fix: " in done.err
    assert not done.out


def test_a_port_that_is_taken_is_said_before_anything_starts(gustfront: Gustfront) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for command in ("serve", "run"):
            done = gustfront(command, "--port", port)
            assert (done.code, port in done.err) == (3, True)


def test_a_database_of_a_newer_release_is_left_alone(gustfront: Gustfront, tmp_path: Path) -> None:
    import sqlite3

    gustfront("mark", "hi")
    with sqlite3.connect(tmp_path / "gustfront.db") as c:
        c.execute("UPDATE alembic_version SET version_num = '9999'")
    for words in (["mark", "again"], ["incidents"], ["backtest", *RANGE]):
        done = gustfront(*words)
        assert done.code == 3
        assert "newer Gustfront" in done.err


def test_a_file_without_one_usable_line_says_so_and_what_is_wrong(
    gustfront: Gustfront, tmp_path: Path
) -> None:
    (tmp_path / "words.jsonl").write_text("hello\n{}\n")
    (tmp_path / "plain.gz").write_bytes(b"not packed\n")
    for command in ("import-requests", "import-outputs"):
        for name in ("words.jsonl", "plain.gz"):
            done = gustfront(command, name)
            assert done.code == 2
            assert "could be used" in done.err
            assert "line" in done.err


def test_bad_lines_among_good_ones_are_reported_and_cost_only_themselves(
    gustfront: Gustfront, tmp_path: Path
) -> None:
    line = json.dumps({"ts": 1789999201.5, "status": 200, "ttft_s": 0.2})
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(f"{line}\nnonsense\n{line}\n".encode()))
    done = gustfront("import-requests", "log.jsonl.gz", "--json")
    facts = json.loads(done.out)
    assert (done.code, facts["imported"], facts["bad"]) == (0, 2, 1)
    (tmp_path / "more.jsonl").write_text(f"{line.replace('200', '201')}\nnonsense\n")
    done = gustfront("import-requests", "more.jsonl")
    assert done.code == 0
    assert "not_json: line 2" in done.err


def test_a_mark_is_stored_as_written(gustfront: Gustfront, tmp_path: Path) -> None:
    done = gustfront(
        "mark", "[red]release [/] 7", "--kind", "deploy", "--pool", "chat-a", "--at", "2026-09-21T15:00Z"
    )
    assert done.code == 0
    with Store.open(f"sqlite:///{tmp_path}/gustfront.db", read_only=True) as store:
        assert store.events() == [Event(1790002800.0, "deploy", "[red]release [/] 7", pool="chat-a")]


def test_json_is_alone_on_stdout(gustfront: Gustfront) -> None:
    gustfront("mark", "hi")
    for words in (
        ["check", "--json"],
        ["incidents", "--json"],
        ["backtest", *RANGE, "--json"],
        ["doctor", "--json"],
    ):
        done = gustfront(*words)
        assert done.code == 0, words
        json.loads(done.out)


HOSTILE = "\x1b[31mred\x1b]0;title\x07\x00\x9b2J\u202egnp.exe [bold]not markup[/bold] <script>"


def test_what_strangers_wrote_reaches_the_terminal_as_words_only(
    gustfront: Gustfront, tmp_path: Path
) -> None:
    (tmp_path / "m.prom").write_text(
        f'vllm:num_requests_running{{model_name="{HOSTILE}",a="{HOSTILE}"}} 3\n'
        f"{HOSTILE} no metric\nvllm:num_requests_waiting NaN\n{HOSTILE}\n"
    )
    (tmp_path / f"{HOSTILE.translate({47: None, 0: None})}.jsonl").write_text("nonsense\n")
    with Store.open(f"sqlite:///{tmp_path}/gustfront.db") as store:
        store.save_incident(
            Incident(
                id="1",
                kind="wedged",
                severity="page",
                state="open",
                title=HOSTILE,
                started_at=1.0,
                replicas=(HOSTILE,),
            )
        )
    for words in (
        ["doctor", "m.prom"],
        ["doctor", HOSTILE],
        ["incidents"],
        ["import-requests", f"{HOSTILE.translate({47: None, 0: None})}.jsonl"],
        ["mark", "x", "--at", HOSTILE],
    ):
        done = gustfront(*words)
        shown = done.out + done.err
        assert not [c for c in shown if c in "\x1b\x07\x00\x9b\u202e"], words
        assert "markup[" in shown  # a narrow column may break the line before it
    assert "no value" in gustfront("doctor", "m.prom").out


def test_a_doctor_without_anything_to_look_at_says_so(gustfront: Gustfront) -> None:
    done = gustfront("doctor")
    assert done.code == 0
    assert "No target" in done.out


def test_a_missing_token_file_costs_the_doctor_one_target(gustfront: Gustfront, tmp_path: Path) -> None:
    (tmp_path / "gustfront.yaml").write_text(
        "sources:\n"
        "  - scrape: {name: a, targets: ['127.0.0.1:1'], token_file: nowhere}\n"
        "  - scrape: {name: b, targets: ['127.0.0.1:1']}\n"
    )
    done = gustfront("doctor", "--json")
    codes = [t["problems"][0]["code"] for t in json.loads(done.out)["targets"]]
    assert (done.code, codes) == (1, ["no_secret", "refused"])


def test_the_embedded_database_lies_beside_the_configuration_whatever_the_folder(
    gustfront: Gustfront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "some.yaml").write_text("limits: {classes: 5}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for name in ("empty.yaml", "some.yaml"):
        done = gustfront("--config", f"../{name}", "mark", "hi")
        assert done.code == 0
    assert (tmp_path / "gustfront.db").is_file()
    assert not list(elsewhere.iterdir())


def test_what_nobody_foresaw_is_one_line_and_leaves_with_3(
    gustfront: Gustfront, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise LookupError("a row that is not there")

    monkeypatch.setattr(Store, "open", broken)
    done = gustfront("incidents")
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "LookupError: a row that is not there" in done.err

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "open", interrupted)
    done = gustfront("mark", "hi")
    assert (done.code, "goes on from there" in done.err) == (130, True)


def _process(*words: str, folder: Path, stdout: IO[bytes] | int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("words", [["check"], ["check", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_failure(words: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    process = _process(*words, folder=tmp_path, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_stdout_is_said_in_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        process = _process("check", "--json", folder=tmp_path, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.startswith(b"gustfront: No space left")
