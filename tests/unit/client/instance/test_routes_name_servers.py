import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bolide.client.instance.routes import NameServers, fetch_addresses
from bolide.errors import ConfigError


@contextmanager
def address_server(text: str) -> Iterator[str]:
    """Answers with a text at any path; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def garbage_server() -> Iterator[str]:
    """Answers one question, but not in HTTP; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"garbage\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        thread.join()


def test_the_one_that_answered_is_asked_first() -> None:
    servers = NameServers(["a:1", "b:2", "c:3"])
    servers.prefer("b:2")
    assert servers.in_order() == ("b:2", "c:3", "a:1")
    servers.prefer("gone:9")
    assert servers.in_order()[0] == "b:2"


def test_clients_begin_at_different_ones() -> None:
    assert {NameServers(["a:1", "b:2"]).in_order()[0] for _ in range(100)} == {"a:1", "b:2"}


def test_the_list_may_be_replaced() -> None:
    servers = NameServers(["a:1", "b:2"])
    assert not servers.set(["b:2", "a:1"])
    assert servers.set("c:3;d:4")
    assert set(servers.in_order()) == {"c:3", "d:4"}
    with pytest.raises(ConfigError, match="nowhere"):
        servers.set("nowhere")
    assert servers.addresses == ("c:3", "d:4")


def test_an_address_server_tells_the_list() -> None:
    with address_server("10.0.0.1:9876;10.0.0.2:9876\n") as url:
        assert fetch_addresses(url, 5.0) == ("10.0.0.1:9876", "10.0.0.2:9876")


def test_an_address_server_that_tells_something_else_is_refused() -> None:
    with address_server("<html>") as url, pytest.raises(ConfigError, match="<html>"):
        fetch_addresses(url, 5.0)
    with garbage_server() as url, pytest.raises(ConfigError, match="no HTTP: garbage"):
        fetch_addresses(url, 5.0)
    with pytest.raises(ConfigError, match="no HTTP"):
        fetch_addresses("http://[", 5.0)
    with pytest.raises(ConfigError, match="address_server='ftp://x'"):
        fetch_addresses("ftp://x", 5.0)
