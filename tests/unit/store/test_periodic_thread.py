import queue
import threading

import pytest

from bolide.store.periodic_thread import PeriodicThread, Signal


def test_a_signal_is_taken_once() -> None:
    signal = Signal()
    assert not signal.wait(0)
    signal.set()
    signal.set()
    assert signal.wait(0)
    assert not signal.wait(0)


def test_a_signal_wakes_the_thread_that_waits() -> None:
    signal, taken = Signal(), queue.SimpleQueue[bool]()
    threading.Thread(target=lambda: taken.put(signal.wait(60))).start()
    signal.set()
    assert taken.get(timeout=60)


def test_work_is_done_again_and_again() -> None:
    rounds = threading.Semaphore(0)
    thread = PeriodicThread("test", rounds.release, lambda: 0.001)
    thread.start()
    assert all(rounds.acquire(timeout=60) for _ in range(3))
    thread.stop()


def test_waking_does_the_work_at_once() -> None:
    rounds = threading.Semaphore(0)
    thread = PeriodicThread("test", rounds.release, lambda: 3600)
    thread.start()
    thread.wake()
    assert rounds.acquire(timeout=60)
    thread.stop()


def test_stopping_cuts_the_wait_and_the_pause_short() -> None:
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        thread.pause(3600)
        done.set()

    thread = PeriodicThread("test", work, lambda: 3600)
    thread.start()
    thread.wake()
    assert inside.wait(60)
    thread.stop()
    assert done.is_set()


def test_an_error_is_logged_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    rounds = threading.Semaphore(0)

    def work() -> None:
        rounds.release()
        raise RuntimeError("first and every time")

    thread = PeriodicThread("the-thread", work, lambda: 0.001)
    thread.start()
    assert all(rounds.acquire(timeout=60) for _ in range(2))
    thread.stop()
    assert "the-thread failed" in caplog.text
    assert "first and every time" in caplog.text


def test_stopping_what_never_started_is_nothing() -> None:
    PeriodicThread("test", lambda: None, lambda: 1.0).stop()
