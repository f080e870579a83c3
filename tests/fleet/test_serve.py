"""A running fleet over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer, unused_port

from collectors.discovery import Endpoint, endpoint, read_groups
from collectors.doctor import examine
from core.config_sources import ScrapeSource
from fleet.director import Director, Scene
from fleet.faces.targets import FleetFaces, Seen
from fleet.model import FaultSpec, FleetSpec, PoolSpec, TrafficSpec
from fleet.serve import ASLEEP, HEADER, Asleep, LiveFleet, application
from fleet.simulation import Simulation

START = 1_790_000_100.0


@dataclass
class Running:
    """A served fleet, its clock in our hands."""

    fleet: LiveFleet
    session: aiohttp.ClientSession
    url: str
    seen: list[Seen]

    async def endpoints(self) -> list[Endpoint]:
        async with self.session.get(f"{self.url}/sd") as answer:
            groups = read_groups(await answer.read(), "sd.json")
        source = ScrapeSource.model_validate({"name": "demo", "http_sd": [f"{self.url}/sd"]})
        return [endpoint(source, address, labels) for address, labels in groups]


def spec() -> FleetSpec:
    pools = (PoolSpec("chat-a", replicas=2, version="0.32.0"),)
    return FleetSpec(pools, (TrafficSpec("chat", "chat-a", rate=0.5),), start=START, lead=30.0, seed=1)


@pytest_asyncio.fixture
async def running() -> AsyncIterator[Running]:
    sim = Simulation(spec())
    seen: list[Seen] = []
    slow = FaultSpec("slow", 0.0, None, "chat-a", (1,), {"factor": 0.5})
    story = (Scene("calm", "well", 60.0), Scene("slow", "one is slow", 60.0, slow))
    fleet = LiveFleet(
        sim,
        FleetFaces(sim),
        Director(story, START),
        seen.append,
        triggers={
            "stop one": FaultSpec("telemetry", 0.0, 60.0, "chat-a", (0,), {"drop": ["ttft"]}),
            "elsewhere": FaultSpec("slow", 0.0, 1.0, "x"),
        },
    )
    port = unused_port()
    server = TestServer(application(fleet, port), host="127.0.0.1", port=port)
    await server.start_server()
    await fleet.step(START + 30)
    async with aiohttp.ClientSession() as session:
        yield Running(fleet, session, f"http://127.0.0.1:{port}", seen)
    await server.close()


async def test_discovery_leads_to_every_target_and_each_is_what_it_says(running: Running) -> None:
    found = await running.endpoints()
    labels = [dict(e.labels) for e in found]
    pods = ["chat-a-0:8000", "chat-a-0:9400", "chat-a-1:8000", "chat-a-1:9400"]
    assert [x["instance"] for x in labels] == [*pods, "gateway-0:4000"]
    assert {x["pool"] for x in labels} == {"chat-a", "gateway"}
    components = []
    for e in found:
        async with running.session.get(e.url) as answer:
            components += examine(await answer.read())["components"]
    assert components == ["vllm", "dcgm_exporter", "vllm", "dcgm_exporter", "litellm"]


async def test_the_fleet_goes_on_and_the_story_with_it(running: Running) -> None:
    url = (await running.endpoints())[0].url

    async def body() -> str:
        async with running.session.get(url) as answer:
            return await answer.text()

    before = await body()
    assert await body() == before
    await running.fleet.step(START + 70)
    assert await body() != before
    async with running.session.get(f"{running.url}/story") as answer:
        story = await answer.json()
    assert (story["scene"], story["text"], story["next_at"]) == ("slow", "one is slow", START + 120)
    assert [e["scene"] for e in story["log"]] == ["calm", "slow"]
    assert sum(len(s.attempts) for s in running.seen) > 10


async def test_a_fault_can_be_triggered_from_this_machine_only(running: Running) -> None:
    session, url = running.session, f"{running.url}/faults"
    async with session.get(url) as answer:
        assert (await answer.json())["faults"] == ["elsewhere", "stop one"]
    wrong: tuple[tuple[dict[str, str], object, int, str], ...] = (
        ({}, {"fault": "stop one"}, 403, "header"),
        ({HEADER: "1"}, {"fault": "no"}, 400, "one of: elsewhere, stop one"),
        ({HEADER: "1"}, ["x"], 400, "no such fault"),
        ({HEADER: "1"}, {"fault": "elsewhere"}, 400, "no pool x"),
        ({HEADER: "1", "Host": "evil.example"}, {"fault": "stop one"}, 403, "only for this machine"),
    )
    for headers, data, status, text in wrong:
        async with session.post(url, json=data, headers=headers) as answer:
            assert (answer.status, text in (await answer.json())["error"]) == (status, True)
    target = (await running.endpoints())[0].url
    async with session.post(url, json={"fault": "stop one"}, headers={HEADER: "1"}) as answer:
        assert (answer.status, (await answer.json())["seconds"]) == (202, 60.0)
    await running.fleet.step(START + 45)
    async with session.get(target) as answer:
        assert "time_to_first_token" not in await answer.text()


async def test_a_replica_that_is_down_breaks_the_connection_and_costs_nobody_else(running: Running) -> None:
    running.fleet.sim.inject(FaultSpec("restart", START + 40, None, "chat-a", (0,), {"down": 300.0}))
    first, *rest = [e.url for e in await running.endpoints()]
    await running.fleet.step(START + 120)
    with pytest.raises(aiohttp.ClientError):
        await running.session.get(first)
    for url in rest:
        async with running.session.get(url) as answer:
            assert answer.status == 200
    async with running.session.get(f"{running.url}/t/nobody/metrics") as answer:
        assert answer.status == 404


async def test_until_the_past_is_written_there_is_nothing_to_scrape(running: Running) -> None:
    running.fleet.ready = False
    assert await running.endpoints() == []


async def test_after_a_long_sleep_the_fleet_gives_up_instead_of_catching_up() -> None:
    sim = Simulation(spec())
    fleet = LiveFleet(sim, FleetFaces(sim), clock=lambda: START + ASLEEP + 60)
    with pytest.raises(Asleep, match="passed unseen"):
        await fleet.keep_up()
