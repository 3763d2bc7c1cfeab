import socket

from pgherd.host.ports import free_ports


def test_a_free_port_can_be_listened_on():
    (port,) = free_ports("127.0.0.1", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert port not in free_ports("127.0.0.1", 3)


def test_ports_are_different_and_none_of_those_that_are_taken(monkeypatch):
    given = iter([5000, 5001, 5000, 5002])

    class Probe(socket.socket):
        def bind(self, address):
            pass

        def getsockname(self):
            return ("127.0.0.1", next(given))

    assert len(set(free_ports("127.0.0.1", 50))) == 50
    monkeypatch.setattr(socket, "socket", Probe)
    assert free_ports("127.0.0.1", 2, {5000}) == [5001, 5002]
