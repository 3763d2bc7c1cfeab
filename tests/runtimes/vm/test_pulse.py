import threading
import time

from pgherd.runtimes.vm import pulse


def test_who_answers_is_waited_for_as_long_as_it_takes():
    asked, given_up = [], []
    with pulse.felt(lambda: asked.append(1), lambda: given_up.append(1), every=0.01):
        while len(asked) < 3:
            time.sleep(0.005)
    assert not given_up


def test_who_does_not_is_given_up_once():
    over = threading.Event()

    def ask():
        raise TimeoutError("nobody is there")

    with pulse.felt(ask, over.set, every=0.01):
        assert over.wait(30)


def test_a_short_wait_asks_nothing():
    asked = []
    with pulse.felt(lambda: asked.append(1), lambda: None, every=60):
        pass
    assert not asked
