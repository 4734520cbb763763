"""The bytes of log replication, in both dialects."""

import pytest

from bolide.protocol.ha import (
    MAX_TRANSFER,
    EpochStart,
    HaProtocolError,
    MasterHello,
    MasterMessages,
    SlaveHello,
    SlaveMessages,
    Transfer,
    encode_epoch_header,
    encode_master_hello,
    encode_plain_header,
    encode_report,
    encode_slave_hello,
)

HELLO = SlaveHello(7, from_last_file=True, is_learner=True)
MASTER_HELLO = MasterHello(5000, 3, (EpochStart(1, 0), EpochStart(3, 4096)))
EPOCH = EpochStart(3, 4096)

FROM_SLAVE: dict[bool, list[tuple[bytes, SlaveHello | int]]] = {
    False: [(encode_report(77, with_epochs=False), 77)],
    True: [(encode_slave_hello(HELLO), HELLO), (encode_report(77, with_epochs=True), 77)],
}
FROM_MASTER: dict[bool, list[tuple[bytes, MasterHello | Transfer]]] = {
    False: [
        (encode_plain_header(4096, 5) + b"bytes", Transfer(4096, b"bytes")),
        (encode_plain_header(4101, 0), Transfer(4101, b"")),
    ],
    True: [
        (encode_master_hello(MASTER_HELLO), MASTER_HELLO),
        (encode_epoch_header(4096, 5, EPOCH, 90) + b"bytes", Transfer(4096, b"bytes", 3, 4096, 90)),
        (encode_epoch_header(4101, 0, EPOCH, 91), Transfer(4101, b"", 3, 4096, 91)),
    ],
}
DIALECTS = pytest.mark.parametrize("with_epochs", [False, True], ids=["plain", "epochs"])


def test_the_layout_is_that_of_rocketmq() -> None:
    assert encode_report(258, with_epochs=False).hex() == "0000000000000102"
    assert encode_report(258, with_epochs=True).hex() == "000000020000000000000102"
    assert encode_slave_hello(HELLO).hex() == "00000001000100010000000000000007"
    assert encode_plain_header(258, 5).hex() == "000000000000010200000005"
    assert encode_epoch_header(258, 5, EpochStart(3, 17), 9).hex() == (
        "000000020000000500000000000001020000000300000000000000110000000000000009"
    )
    assert encode_master_hello(MasterHello(258, 3, (EpochStart(1, 17),))).hex() == (
        "000000010000000c000000000000010200000003000000010000000000000011"
    )


@DIALECTS
def test_messages_of_a_slave_are_read_in_pieces_of_any_size(*, with_epochs: bool) -> None:
    for wire, expected in FROM_SLAVE[with_epochs]:
        for cut in range(len(wire)):
            messages = SlaveMessages(with_epochs=with_epochs)
            assert list(messages.feed(wire[:cut])) == []
            assert list(messages.feed(wire[cut:])) == [expected]


@DIALECTS
def test_messages_of_a_master_are_read_in_pieces_of_any_size(*, with_epochs: bool) -> None:
    for wire, expected in FROM_MASTER[with_epochs]:
        for cut in range(len(wire)):
            messages = MasterMessages(with_epochs=with_epochs)
            assert list(messages.feed(wire[:cut])) == []
            assert list(messages.feed(wire[cut:])) == [expected]


@DIALECTS
def test_several_messages_may_arrive_at_once(*, with_epochs: bool) -> None:
    wires, expected = zip(*FROM_MASTER[with_epochs], strict=True)
    messages = MasterMessages(with_epochs=with_epochs)
    assert list(messages.feed(b"".join(wires) + wires[0][:3])) == list(expected)
    assert list(messages.feed(wires[0][3:])) == [expected[0]]


@DIALECTS
def test_of_several_reports_the_last_counts(*, with_epochs: bool) -> None:
    reports = b"".join(encode_report(n, with_epochs=with_epochs) for n in (1, 5, 9))
    messages = SlaveMessages(with_epochs=with_epochs)
    assert list(messages.feed(reports)) == [9]


def test_a_hello_comes_before_the_report_behind_it() -> None:
    wire = encode_slave_hello(HELLO) + encode_report(5, with_epochs=True)
    assert list(SlaveMessages(with_epochs=True).feed(wire)) == [HELLO, 5]


# ---- limits


@DIALECTS
def test_a_negative_position_of_a_slave_is_refused(*, with_epochs: bool) -> None:
    with pytest.raises(HaProtocolError, match="position -1"):
        list(
            SlaveMessages(with_epochs=with_epochs).feed(encode_report(-1, with_epochs=with_epochs))
        )


def test_a_negative_id_of_a_slave_is_refused() -> None:
    with pytest.raises(HaProtocolError, match="id is -1"):
        list(SlaveMessages(with_epochs=True).feed(encode_slave_hello(SlaveHello(-1))))


@pytest.mark.parametrize("size", [-1, MAX_TRANSFER + 1, 2**31 - 1, -(2**31)])
def test_an_oversized_transfer_is_refused_before_its_bytes_arrive(size: int) -> None:
    with pytest.raises(HaProtocolError, match=f"announced {size} bytes"):
        list(MasterMessages(with_epochs=False).feed(encode_plain_header(0, size)))
    with pytest.raises(HaProtocolError, match=f"announced {size} bytes"):
        list(MasterMessages(with_epochs=True).feed(encode_epoch_header(0, size, EPOCH, 0)))


def test_a_transfer_of_the_largest_size_is_taken() -> None:
    wire = encode_plain_header(0, MAX_TRANSFER) + bytes(MAX_TRANSFER)
    (found,) = MasterMessages(with_epochs=False).feed(wire)
    assert found == Transfer(0, bytes(MAX_TRANSFER))


@DIALECTS
def test_a_transfer_from_a_negative_position_is_refused(*, with_epochs: bool) -> None:
    head = encode_epoch_header(-5, 0, EPOCH, 0) if with_epochs else encode_plain_header(-5, 0)
    with pytest.raises(HaProtocolError, match="position -5"):
        list(MasterMessages(with_epochs=with_epochs).feed(head))


@pytest.mark.parametrize("size", [1, 13, -12, 100_001 * 12])
def test_a_hello_whose_epochs_cannot_be_is_refused(size: int) -> None:
    head = encode_master_hello(MasterHello(0, 1, ()))
    forged = head[:4] + size.to_bytes(4, "big", signed=True) + head[8:] + bytes(max(size, 0))
    with pytest.raises(HaProtocolError, match=f"{size} bytes"):
        list(MasterMessages(with_epochs=True).feed(forged))


@pytest.mark.parametrize("state", [0, 3, -1, 0x47455420])
def test_an_unknown_state_is_refused(state: int) -> None:
    wire = state.to_bytes(4, "big", signed=True)
    with pytest.raises(HaProtocolError, match=f"slave sent state {state}"):
        list(SlaveMessages(with_epochs=True).feed(wire))
    with pytest.raises(HaProtocolError, match=f"master sent state {state}"):
        list(MasterMessages(with_epochs=True).feed(wire))
