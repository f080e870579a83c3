"""HTTPS servers: an own certificate authority, client certificates, and no certificate checked at all."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.prometheus_client_guard import PrometheusClient
from core.config_models import PrometheusSource
from core.errors import SourceError
from tests.collectors.scripted_server import says, scripted

OK = says(200, b'{"status":"success","data":{"resultType":"vector","result":[]}}')


def openssl(folder: Path, *argv: str) -> None:
    subprocess.run(["openssl", *argv], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, and server and client certificates signed by it, each with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    new = ["-newkey", "rsa:2048", "-nodes"]
    openssl(
        folder,
        "req",
        "-x509",
        *new,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=test ca",
        "-days",
        "2",
    )
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(folder, "req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext"]
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return folder


@pytest.fixture
def path(certificates: Path) -> Callable[[str], str]:
    return lambda name: str(certificates / name)


def server_context(certificates: Path, *, client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    if client:
        context.load_verify_locations(certificates / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def check(url: str, **settings: object) -> None:
    source = PrometheusSource(url=url, timeout="2s", **settings)  # type: ignore[arg-type]
    with PrometheusClient(source) as client:
        client.check()


def test_a_certificate_of_an_unknown_authority_is_refused_with_the_fix(certificates: Path) -> None:
    with scripted(OK, tls=server_context(certificates)) as server:
        with pytest.raises(SourceError) as caught:
            check(server.url)
        assert server.asked == []
    assert caught.value.kind == "tls"
    assert "ca_file" in caught.value.fix


def test_the_own_authority_is_believed(certificates: Path, path: Callable[[str], str]) -> None:
    with scripted(OK, tls=server_context(certificates)) as server:
        check(server.url, ca_file=path("ca.pem"))
        assert len(server.asked) == 1


def test_a_client_certificate_opens_the_door(certificates: Path, path: Callable[[str], str]) -> None:
    with scripted(OK, tls=server_context(certificates, client=True)) as server:
        with pytest.raises(SourceError) as caught:
            check(server.url, ca_file=path("ca.pem"))
        check(server.url, ca_file=path("ca.pem"), cert_file=path("client.pem"), key_file=path("client.key"))
        assert len(server.asked) == 1
    assert caught.value.kind in ("tls", "refused", "truncated")


def test_insecure_means_unchecked_and_quiet(certificates: Path) -> None:
    with scripted(OK, tls=server_context(certificates)) as server:
        check(server.url, insecure=True)
        assert len(server.asked) == 1


def test_a_missing_authority_file_is_named(certificates: Path) -> None:
    with scripted(OK, tls=server_context(certificates)) as server, pytest.raises(SourceError) as caught:
        check(server.url, ca_file="/nowhere/ca.pem")
    assert "/nowhere/ca.pem" in str(caught.value)
