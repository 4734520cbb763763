import pytest

from bolide.client.producer.selectors import by_hash, by_machine_room, by_random, hash_code
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue

MESSAGE = Message("T", b"1")
QUEUES = [MessageQueue("T", f"room{n % 2}@broker", n) for n in range(4)]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("order-1", -1207111310),
        ("", 0),
        (7, 7),
        (-7, -7),
        (2**31, -(2**31)),
        (-(2**31), -(2**31)),
        (2**40, 256),
        (-(2**40), -256),
        (-3_000_000_000, -1294967297),
    ],
)
def test_keys_hash_as_in_java(key: object, code: int) -> None:
    assert hash_code(key) == code


def test_equal_keys_go_to_equal_queues() -> None:
    assert by_hash(QUEUES, MESSAGE, -7) is QUEUES[3]
    assert by_hash(QUEUES, MESSAGE, "order-1") is QUEUES[2]
    assert by_hash(QUEUES, MESSAGE, -(2**31)) is QUEUES[0]


def test_random_reaches_every_queue() -> None:
    assert {by_random(QUEUES, MESSAGE, None) for _ in range(200)} == set(QUEUES)


def test_a_machine_room_keeps_to_its_own_brokers() -> None:
    near = by_machine_room({"room1"})
    assert {near(QUEUES, MESSAGE, None) for _ in range(100)} == {QUEUES[1], QUEUES[3]}
    nowhere = by_machine_room({"room9"})
    assert nowhere(QUEUES, MESSAGE, None) in QUEUES
