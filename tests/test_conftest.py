"""The guards that every test runs behind do hold."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "example.org", b"example.org"])
def test_names_and_addresses_elsewhere_are_refused(host: str | bytes) -> None:
    with pytest.raises(RuntimeError, match="a test may not use the network: socket.getaddrinfo"):
        socket.getaddrinfo(host, 443)


def test_connections_elsewhere_are_refused() -> None:
    with (
        socket.socket() as connection,
        pytest.raises(RuntimeError, match=r"socket\.connect to 192\.0\.2\.1"),
    ):
        connection.connect(("192.0.2.1", 443))


def test_this_machine_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5).close()


def test_home_is_not_the_users() -> None:
    assert "home-of-tests-" in Path.home().name
    assert Path("~").expanduser() == Path(os.environ["HOME"])
