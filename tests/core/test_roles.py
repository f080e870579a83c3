import pytest

from core.config import RolesConfig
from core.roles import Roles, strip_port


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("chat-a-0:8000", "chat-a-0"),
        ("chat-a-0", "chat-a-0"),
        ("10.0.0.1:9400", "10.0.0.1"),
        ("http://h:8000/metrics", "h"),
        ("https://h/metrics", "h"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("fe80::1", "fe80::1"),
        ("node:one", "node:one"),
        ("", ""),
    ],
)
def test_a_replica_is_named_without_its_port(instance: str, host: str) -> None:
    assert strip_port(instance) == host


def test_a_target_takes_its_place_from_its_labels() -> None:
    labels = {
        "instance": "mixed-s-1:30000",
        "job": "sglang",
        "pool": "mixed-s",
        "cluster": "eu",
        "Hostname": "gpu-7",
        "model_name": "glm-5",
        "empty": "",
        "__meta_x": "y",
    }
    target = Roles().target("10.0.0.9:30000", labels, "prom", components=["sglang"], version="0.5.18")
    assert (target.replica, target.pool, target.cluster, target.gpu_host) == (
        "mixed-s-1",
        "mixed-s",
        "eu",
        "gpu-7",
    )
    assert (target.model, target.components, target.version, target.job) == (
        "glm-5",
        ("sglang",),
        "0.5.18",
        "sglang",
    )
    assert target.address == "10.0.0.9:30000"
    assert set(target.labels) == {"instance", "job", "pool", "cluster", "Hostname", "model_name"}


def test_without_labels_the_replica_is_the_address_and_the_pool_the_job() -> None:
    target = Roles().target("h:8000", {}, "scrape", job="coder")
    assert (target.replica, target.pool, target.rank, target.model) == ("h", "coder", "", "")


def test_the_first_non_empty_label_of_a_role_wins() -> None:
    roles = Roles.from_config({"pool": ["deployment", "pool"], "replica": ["pod"]})
    assert roles.value("pool", {"deployment": "", "pool": "p"}) == "p"
    assert (
        roles.target("h:1", {"deployment": "d", "pool": "p", "pod": "d-0", "instance": "i:1"}).replica
        == "d-0"
    )
    assert roles.cluster == ("cluster",)


def test_the_defaults_of_the_configuration_are_the_defaults_here() -> None:
    assert Roles.from_config(RolesConfig()) == Roles() == Roles.from_config(None)
