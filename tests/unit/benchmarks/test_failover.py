import pytest

from benchmarks.failover.__main__ import command_line, parse
from benchmarks.failover.clients import Send
from benchmarks.failover.report import report, spread, table
from benchmarks.failover.rounds import Outcome, Round, lost_ids, served_after

OLD, NEW = "127.0.0.1:10911", "127.0.0.1:11011"
STORED_AT_NEW = "7F00000100002B03000000000000007B"


def ok(id_: str, ended: float, broker: str) -> Send:
    return Send(id_, ended - 0.01, ended, "SEND_OK", broker)


def failed(id_: str, ended: float) -> Send:
    return Send(id_, ended - 1.0, ended, "RemotingTimeout")


def test_a_line_of_the_java_program_is_a_send() -> None:
    send = Send.parse(f"java-7 1500000000 2500000000 SEND_OK {STORED_AT_NEW}")
    assert send == Send("java-7", 1.5, 2.5, "SEND_OK", NEW)
    assert send.is_acknowledged
    error = Send.parse("java-8 1500000000 2500000000 RemotingConnectException -")
    assert (error.is_acknowledged, error.broker) == (False, "")


def test_only_a_send_in_full_is_acknowledged() -> None:
    line = f"java-7 1 2 FLUSH_SLAVE_TIMEOUT {STORED_AT_NEW}"
    assert not Send.parse(line).is_acknowledged


def test_a_client_is_served_again_by_the_first_acknowledgement_of_another_broker() -> None:
    sends = [
        ok("a", 9.0, NEW),
        ok("b", 10.1, OLD),
        failed("c", 11.0),
        ok("d", 12.5, NEW),
        ok("e", 13.0, NEW),
    ]
    assert served_after(sends, 10.0, OLD) == 2.5
    assert served_after(sends[:3], 10.0, OLD) is None


def test_lost_is_what_was_acknowledged_and_is_not_stored() -> None:
    sends = [ok("a", 1.0, OLD), ok("b", 2.0, OLD), failed("c", 3.0)]
    assert lost_ids(sends, {"a", "x"}) == {"b"}


def test_a_cell_has_median_and_worst_and_says_what_failed() -> None:
    assert spread([2.0, 1.0, 4.0]) == "2.00 s, worst 4.00 s (3 rounds)"
    assert (
        spread([2.0, None]) == "2.00 s, worst 2.00 s (2 rounds, 1 without service within a minute)"
    )
    assert spread([None]) == "never (1 round, 1 without service within a minute)"
    assert spread([]) == "\N{EN DASH}"


def test_the_table_has_servers_side_by_side_and_only_what_was_measured() -> None:
    ours = Outcome("bolide", [Round(fault="kill", seconds={"python": 2.0})], 1200, 0)
    theirs = Outcome("apache", [Round(fault="kill", seconds={"python": 5.0})], 900, 1)
    head, _, *rows = table([ours, theirs])
    assert head.startswith("| Median time until served again | Bolide | Apache RocketMQ 5.")
    assert [row.split(" | ")[1:] for row in rows] == [
        ["2.00 s, worst 2.00 s (1 round)", "5.00 s, worst 5.00 s (1 round) |"],
        ["1,200", "900 |"],
        ["0", "1 |"],
    ]
    assert "killed" in rows[0]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("", "--rounds 5 --fault kill"),
        ("--fault kill pause --into page.md", "--rounds 5 --fault kill pause"),
        ("--rounds 4 --apache-rounds 3", "--rounds 4 --fault kill --apache-rounds 3"),
        (
            "--servers bolide --client python",
            "--rounds 5 --fault kill --servers bolide --client python",
        ),
    ],
)
def test_the_page_says_with_which_command_it_was_measured(given: str, shown: str) -> None:
    command = command_line(parse(given.split()))

    assert command == f'make bench-failover FAILOVER="{shown}"'
    assert f"Measured with `{command}` on " in report([Outcome("bolide")], 0.5, command)
