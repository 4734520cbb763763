import pytest

from bolide.store.errors import StoreUnwritable
from bolide.store.health import Health


def test_a_store_begins_writable() -> None:
    health = Health()
    assert health.writable
    health.check()


def test_every_cause_is_named_in_the_refusal() -> None:
    health = Health()
    health.refuse("log", "no room for the log")
    health.refuse("index", "no room for the index")
    with pytest.raises(StoreUnwritable) as caught:
        health.check()
    assert caught.value.reason == "no room for the log; no room for the index"


def test_it_is_writable_again_when_the_last_cause_has_gone() -> None:
    health = Health()
    health.refuse("log", "a")
    health.refuse("index", "b")
    health.allow("log")
    assert not health.writable
    health.allow("log")
    health.allow("index")
    assert health.writable


def test_the_newest_reason_of_a_cause_counts() -> None:
    health = Health()
    health.refuse("log", "no space left")
    health.refuse("log", "input/output error")
    assert health.causes == {"log": "input/output error"}


def test_a_cause_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    caplog.set_level("WARNING")
    health.refuse("the log", "no space left")
    health.refuse("the log", "no space left")
    health.allow("the log")
    health.allow("the log")
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "no space left" in caplog.messages[0]
    assert "the log" in caplog.messages[1]
