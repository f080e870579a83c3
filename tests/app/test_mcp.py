"""``gustfront mcp`` as an assistant meets it: a process that answers JSON-RPC line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.mcp_server import MAX_LINE, VERSIONS, Server
from app.mcp_tools import MAX_BYTES, Toolbox, bounded
from core.config import Config
from core.records import OutputRecord
from sql.store import Store
from tests.app.history import END, START, History
from tests.app.server import ROOT

TOOLS = ("open_incidents", "incident", "slo_status", "report", "quality_verdict", "fleet_now", "what_was_odd",
         "doctor")  # fmt: skip


class Talk:
    """A conversation with a real process."""

    def __init__(self, config: Path, *options: str) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("GUSTFRONT_")} | {
            "PYTHONPATH": str(ROOT)
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "--config", str(config), "mcp", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        self._id = 0

    def raw(self, line: bytes) -> Any:
        """Send a line and read one."""
        self.say(line)
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def say(self, line: bytes) -> None:
        """Send a line that nothing answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        answer = self.raw(json.dumps(message).encode())
        assert answer["jsonrpc"] == "2.0"
        assert answer["id"] == self._id
        return answer["result"] if "result" in answer else answer["error"]

    def tool(self, name: str, /, **arguments: Any) -> Any:
        """What a tool says; its structured answer is the text's."""
        found = self.ask("tools/call", name=name, arguments=arguments)
        assert found["isError"] is False, found
        (content,) = found["content"]
        assert content["type"] == "text"
        assert json.loads(content["text"]) == found["structuredContent"]
        assert len(content["text"]) <= MAX_BYTES
        return found["structuredContent"]

    def begin(self) -> Any:
        """The handshake."""
        client = {"name": "test", "version": "0"}
        hello = self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self.say(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        return hello

    def end(self) -> tuple[int, str]:
        """Close the input: the process leaves by itself. Exit code and what stands on stderr."""
        out, err = self._process.communicate(timeout=60)
        assert out == b""
        return self._process.returncode, err.decode()


@pytest.fixture(scope="module")
def talk(storm_history: History) -> Iterator[Talk]:
    made = Talk(storm_history.config)
    hello = made.begin()
    assert hello["protocolVersion"] == "2025-06-18"
    assert hello["capabilities"] == {"tools": {"listChanged": False}}
    assert hello["serverInfo"]["name"] == "gustfront"
    yield made
    code, err = made.end()
    assert (code, err) == (0, "")


def test_the_tools_are_listed_with_what_they_take_and_that_they_only_read(talk: Talk) -> None:
    found = talk.ask("tools/list")["tools"]
    assert tuple(t["name"] for t in found) == TOOLS
    for tool in found:
        assert tool["description"]
        assert tool["inputSchema"]["type"] == "object"
        assert tool["inputSchema"]["additionalProperties"] is False
        assert tool["annotations"]["readOnlyHint"] is True


def test_an_assistant_learns_what_is_wrong_where_and_what_to_do(talk: Talk) -> None:
    (one,) = talk.tool("open_incidents")["incidents"]
    assert one["id"] == "storm-1"
    assert one["severity"] == "page"
    assert one["affected"] == ["coder-0", "coder-1"]
    assert "Admit fewer sessions" in one["first_safe_action"]["now"]
    assert "A restart now empties the caches" in one["first_safe_action"]["avoid"]
    full = talk.tool("incident", id="storm-1")
    assert full["evidence"]
    assert full["ruled_out"]
    assert full["log"][0]["action"] == "opened"
    assert full["told"]["sentence"] == one["sentence"]


def test_every_tool_answers(talk: Talk) -> None:
    names = {s["name"] for s in talk.tool("slo_status")["slos"]}
    assert "coding-agent-ttft" in names
    (slo,) = talk.tool("slo_status", name="coding-agent-ttft")["slos"]
    assert slo["burns"]
    assert talk.tool("report", month="2026-09")["classes"]
    assert talk.tool("quality_verdict", start=str(START), end=str(END))["rate"]["outputs"] > 0
    fleet = talk.tool("fleet_now")
    assert (fleet["replicas_known"], fleet["replicas_seen"]) == (5, 5)
    assert fleet["open_incidents"] == {"page": 1}
    odd = talk.tool("what_was_odd", start=str(END - 600), end=str(END))
    assert odd["tested"] > 0
    assert talk.tool("doctor")["missing"]


@pytest.mark.parametrize(
    ("name", "arguments", "word"),
    [
        ("incident", {"id": "nothing"}, "no incident nothing"),
        ("incident", {}, "id"),
        ("incident", {"id": 7}, "id"),
        ("slo_status", {"name": "x"}, "no objective x; known: "),
        ("slo_status", {"title": "x"}, "title"),
        ("report", {"month": "September"}, "month"),
        ("report", {"month": "2026-13"}, "2026-13"),
        ("what_was_odd", {"start": "soon"}, "start"),
        ("quality_verdict", {"start": "0", "end": "1e9"}, "31 days"),
    ],
)
def test_what_a_tool_cannot_use_is_its_answer_and_says_what_to_give(
    talk: Talk, name: str, arguments: dict[str, Any], word: str
) -> None:
    found = talk.ask("tools/call", name=name, arguments=arguments)
    assert found["isError"] is True
    assert word in found["content"][0]["text"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", -32700),
        (b"[" * 5000, -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rm"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}', -32602),
        (b"x" * (MAX_LINE + 5), -32600),
        (b"\xff\xfe", -32700),
    ],
)
def test_what_is_no_message_is_refused_and_the_conversation_goes_on(
    talk: Talk, line: bytes, code: int
) -> None:
    answer = talk.raw(line)
    assert answer["error"]["code"] == code
    assert talk.ask("ping") == {}


def test_a_version_that_is_not_known_is_answered_with_the_newest_that_is(storm_history: History) -> None:
    talk = Talk(storm_history.config)
    assert talk.ask("tools/list") == {"code": -32600, "message": "initialize comes first"}
    assert (
        talk.ask("initialize", protocolVersion="1999-01-01", capabilities={})["protocolVersion"]
        == VERSIONS[0]
    )
    assert talk.end() == (0, "")


def test_a_database_that_is_not_there_is_said_by_the_tool(tmp_path: Path) -> None:
    (tmp_path / "gustfront.yaml").write_text("database: sqlite:///./absent.db\n")
    talk = Talk(tmp_path / "gustfront.yaml")
    talk.begin()
    found = talk.ask("tools/call", name="open_incidents", arguments={})
    assert found["isError"] is True
    assert "absent.db does not exist" in found["content"][0]["text"]
    assert talk.end() == (0, "")
    assert not (tmp_path / "absent.db").exists()


def test_texts_of_outputs_are_given_only_where_allowed_and_each_look_is_logged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'g.db'}"
    with Store.open(url) as store:
        store.add_outputs([OutputRecord("o-1", END, END - 1, "chat", text="a secret")])
    (tmp_path / "gustfront.yaml").write_text(f"database: {url}\n")
    without = Talk(tmp_path / "gustfront.yaml")
    without.begin()
    assert without.ask("tools/call", name="output_text", arguments={"id": "o-1"})["code"] == -32602
    assert without.end() == (0, "")
    talk = Talk(tmp_path / "gustfront.yaml", "--texts")
    talk.begin()
    assert talk.tool("output_text", id="o-1") == {"id": "o-1", "text": "a secret"}
    assert talk.end() == (0, "")
    with Store.open(url, read_only=True) as store:
        (line,) = store.audit(limit=9)
        assert (line.action, line.subject, line.via, line.origin) == ("read output text", "o-1", "mcp", "mcp")


TREES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3000),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=60,
)


@given(st.dictionaries(st.text(max_size=8), TREES, max_size=6))
def test_an_answer_is_never_longer_than_its_bound(data: dict[str, Any]) -> None:
    found = bounded(data)
    assert len(json.dumps(found, ensure_ascii=False)) <= MAX_BYTES
    if "left_out" not in found:
        assert set(found) == set(data)


def test_what_was_cut_is_said() -> None:
    found = bounded({"rows": [{"x": "y" * 100}] * 5000})
    assert 0 < len(found["rows"]) < 5000
    assert found["left_out"] == 5000 - len(found["rows"])


@given(st.binary(max_size=200))
def test_no_bytes_end_the_conversation(line: bytes) -> None:
    def never() -> Store:
        raise AssertionError("nothing is opened for this")

    answer = Server(Toolbox(Config.built_in(), never), "0").answer(line)
    assert answer is None or json.loads(answer)["jsonrpc"] == "2.0"
