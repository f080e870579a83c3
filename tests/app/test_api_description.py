"""The OpenAPI document against the server that it describes: every route, every answer, every error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from app.api import routes
from app.services.people import RANK, SCOPES
from tests.app.history import History
from tests.app.server import running_app

OTHERS = {"/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/api/{path:path}"}
"""Health, metrics, the document itself, and the answer to every other path."""
IDS = {"/api/v1/slos/{id}": "coding-agent-ttft", "/api/v1/incidents/{id}": "storm-1"}


@pytest.fixture(scope="module")
def api(storm_history: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("described")
    with running_app(storm_history.config, folder) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def document(api: httpx.Client) -> dict[str, Any]:
    return api.get("/api/v1/openapi.json").json()  # type: ignore[no-any-return]


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, told) for path, item in document["paths"].items() for method, told in item.items()]


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert [str(e.message) for e in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_every_route_is_described_and_every_description_has_a_route(document: dict[str, Any]) -> None:
    served = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in routes()
        if isinstance(route, Route) and route.path not in OTHERS
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {(path, method.upper()) for path, method, _ in operations(document)}


def test_every_operation_has_a_name_of_its_own_and_says_who_may(document: dict[str, Any]) -> None:
    names = [told["operationId"] for _, _, told in operations(document)]
    assert len(set(names)) == len(names)
    for path, method, told in operations(document):
        found = re.fullmatch(r"Least role: (\w+)\. Scope of a token: (\S+)\.", told["description"])
        assert found, path
        assert found[1] in RANK
        assert found[2] in {*SCOPES, "any"}
        assert {"400", "401", "403", "429", "503"} <= set(told["responses"]), (method, path)
        for status, answer in told["responses"].items():
            if int(status) >= 400:
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}


def test_every_scope_is_some_operations(document: dict[str, Any]) -> None:
    used = {told["description"].rpartition(" ")[2].rstrip(".") for _, _, told in operations(document)}
    assert set(SCOPES) - used <= {"metrics:read", "texts:read", "events:write"}


def strict(schema: Any) -> Any:
    """The schema of an object that names its properties allows no others: what is answered is described."""
    if isinstance(schema, dict):
        made = {k: strict(v) for k, v in schema.items()}
        if isinstance(made.get("properties"), dict) and "additionalProperties" not in made:
            made["additionalProperties"] = False
        return made
    return [strict(v) for v in schema] if isinstance(schema, list) else schema


def test_real_answers_fit_their_schemas_and_hold_nothing_else(
    api: httpx.Client, document: dict[str, Any]
) -> None:
    components = strict(document["components"])
    tried, wrong = 0, list[str]()
    for path, method, told in operations(document):
        content = told["responses"].get("200", {}).get("content", {})
        if method != "get" or "application/json" not in content:
            continue
        url = path
        for prefix, name in IDS.items():
            url = url.replace(prefix, prefix.replace("{id}", name)) if path.startswith(prefix) else url
        url = url.replace("{month}", "2026-09")
        if "{" in url:
            continue
        query = {
            p["name"]: "ttft_seconds" for p in told["parameters"] if p.get("required") and p["in"] == "query"
        }
        answer = api.get(url, params=query)
        assert answer.status_code == 200, (url, answer.text)
        schema = {**strict(content["application/json"]["schema"]), "components": components}
        for error in jsonschema.Draft202012Validator(schema).iter_errors(answer.json()):
            wrong.append(f"{url}: {error.json_path}: {error.message[:300]}")
        tried += 1
    assert wrong == []
    assert tried >= 14


def test_errors_fit_their_schema(api: httpx.Client, document: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/Error", "components": document["components"]}
    for path in ("nothing", "series", "slos/none/status", "report/soon", "targets?limit=0"):
        answer = api.get(f"/api/v1/{path}")
        assert answer.status_code in (400, 404)
        jsonschema.Draft202012Validator(schema).validate(answer.json())


def test_a_list_in_pages_gives_each_item_once_in_the_same_order(api: httpx.Client) -> None:
    for path, name in (
        ("/api/v1/targets", "targets"),
        ("/api/v1/slos", "slos"),
        ("/api/v1/replicas", "replicas"),
    ):
        whole = api.get(path).json()
        assert whole["next"] is None
        seen: list[Any] = []
        cursor: str | None = None
        while True:
            query: dict[str, Any] = {"limit": 2} | ({"cursor": cursor} if cursor else {})
            part = api.get(path, params=query).json()
            assert len(part[name]) <= 2
            seen += part[name]
            cursor = part["next"]
            if cursor is None:
                break
        assert seen == whole[name]
        assert len(seen) > 2
    assert api.get("/api/v1/targets", params={"cursor": "x"}).status_code == 400


def test_objectives_over_rest_are_those_of_the_command_line(
    api: httpx.Client, storm_history: History
) -> None:
    from app.services.slo_report import lines
    from core.config import load_config
    from sql.store import Store

    config = load_config(storm_history.config)
    with Store.open(config.database, read_only=True) as store:
        expected = {one["name"]: one for one in lines(store, config)}
    found = {one["name"]: one for one in api.get("/api/v1/slos").json()["slos"]}
    assert set(found) == set(expected)
    for name, one in found.items():
        for key in ("attained", "state", "good", "bad", "budget_left_text", "forecast", "spent"):
            assert one.get(key) == expected[name].get(key), (name, key)
        status = api.get(f"/api/v1/slos/{name}/status").json()
        assert (status["attained"], status["good"]) == (one["attained"], one["good"])
        eaten = api.get(f"/api/v1/slos/{name}/budget").json()
        assert sum(e["bad"] for e in eaten["eaten"]) in (0, one["bad"])


def test_a_report_is_served_in_three_forms(api: httpx.Client) -> None:
    for form, kind in (("json", "application/json"), ("csv", "text/csv"), ("html", "text/html")):
        answer = api.get("/api/v1/report/2026-09", params={"format": form})
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    assert api.get("/api/v1/report/2026-09", params={"format": "pdf"}).status_code == 400
