"""The guarded client: every way in which a server can fail has a name, costs a bounded time and leaks nothing."""

from __future__ import annotations

import ast
import base64
import json
import os
import time
from pathlib import Path

import pytest

from collectors import prometheus_http
from collectors.prometheus_client_guard import PrometheusClient, any_of, matcher
from core.config_models import PrometheusSource, SourceConfig
from core.errors import SourceError
from tests.collectors.scripted_server import Script, breaks_off, drips, hangs, matrix, says, scripted
from tests.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
UP = {"metric": {"__name__": "up", "job": "vllm", "instance": "a:1"}, "values": [[1000, "1"], [1015, "1"]]}


def client(url: str, **settings: object) -> PrometheusClient:
    return PrometheusClient(PrometheusSource(url=url, **{"timeout": "10s", **settings}))  # type: ignore[arg-type]


def failing(url: str, **settings: object) -> SourceError:
    with client(url, **settings) as c, pytest.raises(SourceError) as caught:
        c.samples("{}", 1000, 1030)
    return caught.value


def test_only_the_guard_imports_the_library() -> None:
    """Everything else would meet its missing time limits and import-time defaults."""
    users = set()
    for path in (
        p
        for folder in ("app", "collectors", "core", "detectors", "sql")
        for p in (ROOT / folder).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(n.split(".")[0] == "prometheus_api_client" for n in names):
                users.add(path.name)
    assert users == {"prometheus_client_guard.py"}


def test_a_window_is_asked_as_a_range_selector_that_excludes_its_end() -> None:
    with scripted(says(200, matrix([UP]))) as server, client(server.url) as c:
        answer = c.samples('{job="vllm"}', 1000, 1030)
        (asked,) = server.asked
    assert asked.path == "/api/v1/query"
    assert asked.params == {"query": '{job="vllm"}[30s]', "time": "1029.999", "timeout": "10s"}
    assert answer.samples == 2
    assert answer.series[0].labels["instance"] == "a:1"
    assert answer.warnings == []


def test_windows_that_are_no_whole_seconds_are_asked_in_milliseconds() -> None:
    with scripted() as server, client(server.url) as c:
        c.samples("{}", 1000.25, 1001.5)
        c.samples("{}", 1000, 1000)
    assert server.queries == ["{}[1250ms]"]


@pytest.mark.parametrize(
    ("status", "kind", "fix"),
    [
        (400, "http_400", "selector"),
        (401, "http_401", "token_file"),
        (403, "http_403", "org_id"),
        (404, "http_404", "/prometheus"),
        (422, "http_422", "max-samples"),
        (503, "http_503", "asked again"),
    ],
)
def test_each_refusal_has_its_kind_and_its_fix(status: int, kind: str, fix: str) -> None:
    body = json.dumps({"status": "error", "errorType": "execution", "error": "too many samples"}).encode()
    with scripted(says(status, body)) as server:
        error = failing(server.url)
        assert len(server.asked) == 1
    assert error.kind == kind
    assert "too many samples" in error.problem
    assert fix in error.fix


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html><body>Sign in</body></html>", "bad_json"),
        (b"", "bad_json"),
        (b'"up"', "bad_json"),
        (b"[1, 2]", "bad_json"),
        (b"{}", "bad_json"),
        (b'{"status":"success"}', "bad_json"),
        (b'{"status":"success","data":[]}', "bad_json"),
        (b'{"status":"success","data":null}', "bad_json"),
        (b'{"status":"success","data":{}}', "bad_json"),
        (b'{"status":"success","data":{"result":{"a":1}}}', "bad_json"),
        (b'{"status":"error","errorType":"timeout","error":"slow"}', "error_timeout"),
        (b"\xff\xfe\x00", "bad_json"),
        (matrix([UP])[:-20], "bad_json"),
    ],
)
def test_garbage_instead_of_a_reply_is_bad_json(body: bytes, kind: str) -> None:
    with scripted(says(200, body)) as server:
        error = failing(server.url)
    assert error.kind == kind
    assert len(str(error)) < 1000


def test_entries_that_are_no_series_are_counted_and_do_not_cost_the_others() -> None:
    rows = [
        UP,
        "x",
        {"metric": {"a": 1}, "values": [[1, "1"]]},
        {"metric": {}},
        {"metric": {}, "values": "no"},
    ]
    with scripted(says(200, matrix(rows))) as server, client(server.url) as c:  # type: ignore[arg-type]
        answer = c.samples("{}", 1000, 1030)
    assert [s.labels["__name__"] for s in answer.series] == ["up"]
    assert answer.malformed == 4


def test_what_the_server_warns_about_reaches_the_caller_once() -> None:
    with (
        scripted(says(200, matrix([UP], warnings=["store a:10901 is down"]))) as server,
        client(server.url) as c,
    ):
        assert c.samples("{}", 1000, 1030).warnings == ["store a:10901 is down"]
        server.behave = says(200, matrix([UP]))
        assert c.samples("{}", 1000, 1030).warnings == []


def test_a_server_that_hangs_costs_its_time_limit_once() -> None:
    with scripted() as server:
        server.behave = hangs(lambda: server)
        began = time.monotonic()
        error = failing(server.url, timeout="500ms")
        assert time.monotonic() - began < 5
        assert len(server.asked) == 1
    assert error.kind == "timeout"


def test_a_server_that_drips_for_ever_is_given_up() -> None:
    def it() -> Script:
        return server

    with scripted() as server:
        server.behave = drips(it)
        began = time.monotonic()
        error = failing(server.url, timeout="500ms")
        assert time.monotonic() - began < 8
    assert error.kind == "timeout"


def test_a_body_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_http, "MAX_BODY", 1000)
    with scripted(says(200, b" " * 5000)) as server:
        assert failing(server.url).kind == "too_large"


def test_an_answer_that_breaks_off_is_told_from_garbage() -> None:
    with scripted(breaks_off(matrix([UP]))) as server:
        assert failing(server.url).kind == "truncated"


def test_nobody_listening_and_unknown_hosts_are_told_apart() -> None:
    assert failing(f"http://127.0.0.1:{free_port()}").kind == "refused"
    assert failing("http://no-such-host.invalid:9090").kind in ("dns", "refused")


def test_plain_http_behind_https_is_a_tls_problem() -> None:
    with scripted() as server:
        assert failing(server.url.replace("http://", "https://")).kind in ("tls", "refused", "truncated")


def test_secrets_are_not_sent_to_another_host() -> None:
    with scripted() as other, scripted(says(302, b"", Location=f"{other.url}/steal")) as server:
        error = failing(server.url, headers={"X-Secret": "s"}, org_id="team")
        assert other.asked == []
    assert error.kind == "redirect"


def test_token_tenant_and_headers_are_sent_and_the_token_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    with (
        scripted() as server,
        client(server.url, token_file=str(token), org_id="t1", headers={"X-A": "b"}) as c,
    ):
        c.samples("{}", 0, 15)
        token.write_text("second\n")
        os.utime(token, (1, 1))
        c.samples("{}", 0, 15)
        first, second = server.asked
    assert (first.headers["authorization"], second.headers["authorization"]) == (
        "Bearer one",
        "Bearer second",
    )
    assert (first.headers["x-scope-orgid"], first.headers["x-a"]) == ("t1", "b")


def test_basic_authentication_reads_the_password_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("pä:ss\n")
    with scripted() as server, client(server.url, username="u", password_file=str(tmp_path / "pw")) as c:
        c.check()
        kind, value = server.asked[0].headers["authorization"].split()
    assert kind == "Basic"
    assert base64.b64decode(value).startswith(b"u:p")


def test_netrc_is_not_consulted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with scripted() as server, client(server.url) as c:
        c.check()
        assert "authorization" not in server.asked[0].headers


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    with scripted() as server:
        error = failing(server.url, token_file=str(tmp_path / "none"))
        assert server.asked == []
    assert error.kind == "no_secret"
    assert "none" in error.problem


def test_label_values_cannot_break_out_of_a_selector() -> None:
    assert matcher("a", "=", 'x"} or y{b="\\') == 'a="x\\"} or y{b=\\"\\\\"'
    assert any_of("job", ["a.b", "c|d"]) == r'job=~"a\\.b|c\\|d"'


def test_a_server_that_does_not_tell_its_version_has_none() -> None:
    """VictoriaMetrics answers with an empty object, a proxy perhaps with an error page."""
    with scripted(says(200, b'{"status":"success","data":{}}')) as server, client(server.url) as c:
        assert c.version() == ""
        server.behave = says(404, b"no")
        assert c.version() == ""
        server.behave = says(200, b'{"status":"success","data":{"version":"2.42.0"}}')
        assert c.version() == "2.42.0"


def test_the_servers_clock_is_compared_with_ours() -> None:
    with scripted() as server, client(server.url) as c:
        assert c.skew is None
        c.check()
        assert c.skew is not None
        assert abs(c.skew) < 3


def test_the_name_of_a_source_is_its_address_unless_given() -> None:
    source = SourceConfig.model_validate({"prometheus": {"url": "http://p:9090/x"}})
    assert PrometheusClient(source).name == "prometheus:p:9090/x"
    with client("http://p:9090", name="eu") as c:
        assert c.name == "eu"
