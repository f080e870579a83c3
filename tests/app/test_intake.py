"""Outputs, outcomes and OTLP sent to the real server."""

from __future__ import annotations

import gzip
import json
import sqlite3
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from app.services.intake import Busy, Intake
from core.config import load_config
from core.records import OutputRecord
from sql.store import Store
from tests.app.server import running_app
from tests.collectors import payloads as p

T0 = 1_789_999_200.0
TOKEN = "a-token-of-this-test"
CONFIG = f"""
database: sqlite:///./g.db
intake:
  tokens: [{sha256(TOKEN.encode()).hexdigest()}]
  max_body: 200000
  max_records: 50
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("intake")
    (folder / "gustfront.yaml").write_text(CONFIG)
    Store.open(f"sqlite:///{folder / 'g.db'}").close()
    return folder


@pytest.fixture(scope="module")
def api(folder: Path) -> Iterator[httpx.Client]:
    with (
        running_app(folder / "gustfront.yaml", folder) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client


def stored(folder: Path) -> dict[str, OutputRecord]:
    with Store.open(f"sqlite:///{folder / 'g.db'}", read_only=True) as store:
        return {r.id: r for r in store.outputs(0, 4e9)}


def output(id_: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "ts": T0, "output": "All is well with the harbour.", "workload": "chat"} | more


def post(api: httpx.Client, path: str, body: Any, status: int = 200, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = api.post(path, content=raw, headers={"content-type": "application/json"} | headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_outputs_are_scored_and_stored_once(api: httpx.Client, folder: Path) -> None:
    batch = {"outputs": [output("a-1"), output("a-2", output="!" * 400)]}
    first = post(api, "/api/v1/outputs", batch)
    assert (first["received"], first["stored"], first["bad"]) == (2, 2, 0)
    again = post(api, "/api/v1/outputs", batch)
    assert (again["stored"], again["already_there"]) == (0, 2)
    found = stored(folder)
    assert (found["a-1"].verdict, found["a-2"].verdict) == ("clean", "hard")
    assert found["a-1"].source == "api"
    assert found["a-1"].text is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (json.dumps(output("s-1")), "application/json"),
        (json.dumps([output("s-2")]), "application/json"),
        (json.dumps(output("s-3")) + "\n\n" + json.dumps(output("s-4")), "application/x-ndjson"),
    ],
)
def test_one_object_a_list_and_json_lines_are_understood(api: httpx.Client, body: str, kind: str) -> None:
    taken = post(api, "/api/v1/outputs", body.encode(), **{"content-type": kind})
    assert taken["stored"] == taken["received"] > 0


def test_packed_bodies_are_understood_and_bombs_refused(api: httpx.Client) -> None:
    raw = json.dumps([output("z-1")]).encode()
    assert post(api, "/api/v1/outputs", gzip.compress(raw), **{"content-encoding": "gzip"})["stored"] == 1
    packed = zstandard.compress(json.dumps([output("z-2")]).encode())
    assert post(api, "/api/v1/outputs", packed, **{"content-encoding": "zstd"})["stored"] == 1
    bomb = gzip.compress(b" " * 50_000_000)
    refusal = post(api, "/api/v1/outputs", bomb, 413, **{"content-encoding": "gzip"})
    assert refusal["error"]["code"] == "too_long"
    assert (
        post(api, "/api/v1/outputs", b"junk", 400, **{"content-encoding": "gzip"})["error"]["code"]
        == "bad_encoding"
    )


def test_what_other_tools_log_is_recognised(api: httpx.Client, folder: Path) -> None:
    record = {**p.LITELLM, "id": "litellm-1"}
    assert post(api, "/api/v1/outputs", [record])["stored"] == 1
    assert post(api, "/api/v1/outputs?format=openai", [{**p.OPENAI, "id": "openai-1"}])["stored"] == 1
    found = stored(folder)
    assert (found["litellm-1"].prompt_tokens, found["litellm-1"].replica) == (24, "chat-a-1")
    assert found["openai-1"].output_tokens == 17
    assert post(api, "/api/v1/outputs?format=helicone", [record], 400)["error"]["code"] == "bad_request"


def test_bad_records_are_named_and_the_rest_is_stored(api: httpx.Client) -> None:
    taken = post(
        api, "/api/v1/outputs", [output("b-1"), {"id": "b-2"}, output("", id=""), output("b-3", ts=T0 * 1000)]
    )
    assert (taken["stored"], taken["bad"]) == (1, 3)
    assert [(x["index"], x["code"]) for x in taken["problems"]] == [
        (1, "no_time"),
        (2, "no_id"),
        (3, "bad_time"),
    ]
    none = post(api, "/api/v1/outputs", [{"id": "b-4"}], 400)
    assert none["error"]["code"] == "no_time"


def test_outcomes_join_by_request_and_by_session(api: httpx.Client, folder: Path) -> None:
    post(api, "/api/v1/outputs", [output("o-1", session="user-1")])
    outcomes = [
        {"kind": "tests_passed", "ok": False, "request": "o-1", "ts": T0 + 60, "value": 0.5},
        {"kind": "abandoned", "session": "user-1", "ts": T0 + 90},
    ]
    assert post(api, "/api/v1/outcomes", {"outcomes": outcomes})["stored"] == 2
    assert post(api, "/api/v1/outcomes", {"outcomes": outcomes})["already_there"] == 2
    with sqlite3.connect(folder / "g.db") as c:
        (row,) = c.execute("SELECT kind, ok, value, class FROM v_outcomes WHERE request = 'o-1'").fetchall()
        assert row == ("tests_passed", 0, 0.5, "chat")
        query = "SELECT y.kind FROM outcomes y JOIN outputs o ON o.session = y.session WHERE o.id = 'o-1' AND y.session <> ''"
        assert c.execute(query).fetchall() == [("abandoned",)]
    bad = [{"kind": "liked", "request": "o-1"}, {"kind": "tool_ran", "request": "o-1"}, {"kind": "abandoned"}]
    taken = post(api, "/api/v1/outcomes", [*outcomes, *bad])
    assert [x["code"] for x in taken["problems"]] == ["no_kind", "no_ok", "no_subject"]


def test_spans_arrive_as_json_and_as_protobuf(api: httpx.Client, folder: Path) -> None:
    contents = {"gen_ai.input.messages": p.IN_PARTS, "gen_ai.output.messages": json.dumps(p.OUT_PARTS)}
    path = "/api/v1/otlp/v1/traces"
    assert post(api, path, p.span(p.BASE | contents | {"gen_ai.response.id": "otlp-1"})) == {}
    data = p.span(p.BASE | contents | {"gen_ai.response.id": "otlp-2"})
    message = ParseDict(data, ExportTraceServiceRequest())
    headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
    answer = api.post(path, content=gzip.compress(message.SerializeToString()), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-protobuf"
    assert not ExportTraceServiceResponse.FromString(answer.content).HasField("partial_success")
    found = stored(folder)
    for id_ in ("otlp-1", "otlp-2"):
        r = found[id_]
        assert (r.verdict, r.ts, r.model, r.source) == ("clean", p.END, "glm-5-air", "otlp")
        assert (r.prompt_tokens, r.output_tokens, r.cached_tokens, r.finish_reason) == (24, 17, 16, "stop")
        assert r.admitted == pytest.approx(p.END - 2.5)
        assert r.session.startswith("s-")
        assert r.workload_class == "chat"


def test_a_body_of_the_wrong_kind_is_refused(api: httpx.Client) -> None:
    assert post(api, "/api/v1/outputs", b"{", 400)["error"]["code"] == "not_json"
    assert post(api, "/api/v1/outputs", [1], 400)["error"]["code"] == "bad_request"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert post(api, "/api/v1/outputs", b"a=b", 415, **form)["error"]["code"] == "bad_content_type"
    assert post(api, "/api/v1/outputs", b"a=b", 415, **{"content-type": "text/plain"})
    assert (
        post(api, "/api/v1/outputs", [output(f"m-{i}") for i in range(51)], 413)["error"]["code"]
        == "too_many"
    )
    assert (
        post(api, "/api/v1/outputs", [output("l", output="x " * 150_000)], 413)["error"]["code"] == "too_long"
    )
    proto = {"content-type": "application/x-protobuf"}
    assert (
        post(api, "/api/v1/otlp/v1/traces", b"\xff\xff\xff", 400, **proto)["error"]["code"] == "bad_request"
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8501"}, 403),
        ({"host": "attacker.example"}, 403),
        ({"x-forwarded-for": "203.0.113.9"}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        (
            {
                "authorization": f"Bearer {TOKEN}",
                "host": "gustfront.example",
                "x-forwarded-for": "203.0.113.9",
            },
            200,
        ),
    ],
)
def test_who_may_send_without_a_token_is_a_program_on_this_machine(
    api: httpx.Client, headers: dict[str, str], status: int
) -> None:
    body = post(api, "/api/v1/outputs", [output("w-1")], status, **headers)
    assert status == 200 or set(body["error"]) == {"code", "message", "fix"}


def test_the_intake_counts_itself(api: httpx.Client) -> None:
    post(api, "/api/v1/outputs", [output("n-1")])
    text = api.get("/metrics").text
    assert 'gustfront_intake_records_total{kind="api",result="stored"}' in text


def test_the_description_names_every_path_that_takes_records(api: httpx.Client) -> None:
    paths = api.get("/api/v1/openapi.json").json()["paths"]
    for path in ("outputs", "outcomes", "otlp/v1/logs", "otlp/v1/traces"):
        content = paths[f"/api/v1/{path}"]["post"]["requestBody"]["content"]
        assert "application/json" in content


@pytest.mark.parametrize(("accept", "code"), [("nothing", "intake_off"), ("token", "no_token")])
def test_it_can_be_switched_off_or_made_to_need_a_token(tmp_path: Path, accept: str, code: str) -> None:
    (tmp_path / "gustfront.yaml").write_text(f"database: sqlite:///./g.db\nintake: {{accept: {accept}}}\n")
    with (
        running_app(tmp_path / "gustfront.yaml", tmp_path) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        answer = client.post("/api/v1/outputs", json=[output("x")])
        assert answer.status_code in (401, 403)
        assert answer.json()["error"]["code"] == code


def test_more_bodies_than_may_wait_are_refused_for_now(tmp_path: Path) -> None:
    (tmp_path / "gustfront.yaml").write_text("database: sqlite:///./g.db\nintake: {waiting: 1}\n")
    intake = Intake(load_config(tmp_path / "gustfront.yaml"))
    entered, go = threading.Event(), threading.Event()

    def slow() -> Iterator[dict[str, Any]]:
        entered.set()
        assert go.wait(30)
        yield output("slow-1")

    done: list[int] = []
    threads = [
        threading.Thread(target=lambda: done.append(intake.outputs(slow()).stored)),
        threading.Thread(target=lambda: done.append(intake.outputs([output("slow-2")]).stored)),
    ]
    threads[0].start()
    assert entered.wait(30)
    threads[1].start()
    while intake._waiting < 2:
        pass
    with pytest.raises(Busy) as busy:
        intake.outputs([output("slow-3")])
    assert busy.value.retry_after >= 1
    go.set()
    for t in threads:
        t.join(30)
    assert done == [1, 1]
    assert intake.outputs([output("slow-3")]).stored == 1
    intake.close()
