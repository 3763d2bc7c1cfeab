import http.server
import socket
import threading
from pathlib import Path

import pytest

from pgherd.export import node_exporter

TEXT = (Path(__file__).parents[1] / "fixtures/metrics/node_exporter.txt").read_bytes()


@pytest.fixture
def answers():
    """Answers every request with a text; gives the port and a list of the paths that were asked for."""
    servers, asked = [], []

    def serve(body, status=200):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_port, asked

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_real_answer_is_known_by_its_build(answers):
    port, asked = answers(TEXT)
    assert node_exporter.find(port) == (f"127.0.0.1:{port}", "1.5.0")
    assert asked == ["/metrics?collect[]=time"], "only what is cheap is asked for"


@pytest.mark.parametrize("body", [b"", b"hello", b"node_exporter_build_info{} 1\n", b"\xff\x00" * 1000])
def test_something_else_on_that_port_is_none(answers, body):
    port, _ = answers(body)
    assert node_exporter.find(port) is None


def test_nothing_on_that_port_is_none():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert node_exporter.find(free.getsockname()[1]) is None
