"""The doctor on the simulated TensorRT-LLM, Dynamo front end and LiteLLM, beside captures and the facts about the real ones."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from collectors.doctor import examine
from fleet.faces.dynamo import DynamoFrontendFace
from fleet.faces.gateway import GatewayFace
from fleet.model import GatewayState
from tests.conftest import shared_folder
from tests.fleet.replicas import pool
from tests.fleet.test_faces import attempt, capture, shown


def trtllm() -> dict[str, Any]:
    return examine(shown("tensorrt_llm", aborted=1)[0].page.text())


def frontend() -> dict[str, Any]:
    face = DynamoFrontendFace(0.0)
    for status in (200, 200, 499, 503):
        face.observe_attempt(attempt(status), "m")
    face.observe_cached("m", [40.0])
    face.refresh({"m": (2.0, 1.0)}, {"m": pool("dynamo")}, 10.0)
    return examine(face.page.text())


def litellm() -> dict[str, Any]:
    face = GatewayFace({"p": "m"}, 0.0)
    face.observe([attempt(200), attempt(200), attempt(502)])
    face.refresh(GatewayState(healthy={"p": False}))
    return examine(face.page.text())


FACES = {"tensorrt_llm": trtllm, "dynamo_frontend": frontend, "litellm": litellm}


@pytest.mark.shared
def test_the_doctor_finds_on_the_simulated_trtllm_what_it_finds_on_the_real_one() -> None:
    """The capture is of an older server: it also counted failures and aborts, which later ones no longer export."""
    ours, real = trtllm(), capture("trtllm-pr5560-pytrtllm.prom")
    assert ours["components"] == real["components"] == ["tensorrt_llm"]
    assert set(real["signals"]) - set(ours["signals"]) == {"aborted_total", "errors_total"}
    common = set(real["signals"]) & set(ours["signals"])
    other = {i for i in common if ours["signals"][i]["family"] != real["signals"][i]["family"]}
    assert len(common) >= 5
    assert other == {"request_success_total"}


@pytest.mark.shared
def test_the_doctor_finds_on_the_simulated_front_end_what_it_finds_on_the_real_one() -> None:
    """The captured one routed by KV itself and so also shows a router's families; the simulated one has no such router."""
    ours, real = frontend(), capture("live-dynamo-frontend-1.6.1-after.prom")
    router = {"admission_rejections_total", "prefix_cache_hit_rate", "worker_load_seen_by_router"}
    assert ours["components"] == real["components"] == ["dynamo_frontend"]
    assert set(ours["signals"]) == set(real["signals"]) - router
    other = {i for i in ours["signals"] if ours["signals"][i]["family"] != real["signals"][i]["family"]}
    assert other == {"router_pool_health", "requests_waiting"}
    for id in other:
        assert "router" in real["signals"][id]["family"]


@pytest.mark.shared
@pytest.mark.parametrize("component", FACES)
def test_every_family_is_one_that_the_facts_name_for_that_engine_and_that_signal(component: str) -> None:
    folder = shared_folder()
    if folder is None:
        pytest.skip("the facts are not here")
    facts = yaml.safe_load((folder / "engines.yaml").read_text())
    known = {s["id"]: {e["name"] for e in s["engines"].get(component, ())} for s in facts["signals"]}
    wrong = {}
    found = FACES[component]()
    for id, signal in found["signals"].items():
        names = {n.replace(":", "_") for n in known.get(id, ())}
        # What the facts list for no such component (the age of its process) comes from the library that it is built on.
        if names and signal["family"].replace(":", "_") not in names:
            wrong[id] = (signal["family"], names)
    assert wrong == {}
    assert found["problems"] == []
    assert len(found["signals"]) >= 9


def test_the_doctor_says_of_each_what_is_missing_and_why() -> None:
    reasons = {m["id"]: m["reason"] for m in litellm()["missing"]}
    assert {"kv_cache_usage_ratio", "queue_time_seconds"} <= set(reasons)
    assert all(reasons.values())
