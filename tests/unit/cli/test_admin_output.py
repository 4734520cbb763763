"""Output formats of the admin commands."""

import stat
import tempfile
from pathlib import Path

import msgspec
import pytest

from bolide.cli.admin.output import print_message, time_text
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.model.message import StoredMessage


@pytest.mark.parametrize("number", [2**60, 2**63 - 1, -(2**63)])
def test_what_is_no_time_is_shown_as_the_number_it_is(number: int) -> None:
    assert time_text(number) == time_text(number, millis=False) == str(number)


def test_a_time_is_shown_with_or_without_its_milliseconds() -> None:
    assert time_text(1_700_000_000_007).endswith(",007")
    assert time_text(1_700_000_000_007) == time_text(1_700_000_000_000, millis=False) + ",007"


@pytest.mark.parametrize("unique_id", ["../../proof", "/proof", "..", "a/b", "x" * 300, "a\0b", ""])
def test_the_id_that_a_sender_chose_leads_to_no_other_directory(
    unique_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    message = StoredMessage("T", b"body", {"UNIQ_KEY": unique_id})
    print_message(message, [], None)
    [file] = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file == tmp_path / "rocketmq" / "msgbodys" / message.offset_message_id
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"body", 0o600)


def test_a_file_that_another_user_prepared_gets_no_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    message = StoredMessage("T", b"body", {"UNIQ_KEY": "ID"})
    prepared = tmp_path / "rocketmq" / "msgbodys" / "ID"
    prepared.parent.mkdir(parents=True)
    prepared.touch(0o666)
    with prepared.open("rb") as held:
        print_message(message, [], None)
        assert held.read() == b""
    assert (prepared.read_bytes(), stat.S_IMODE(prepared.stat().st_mode)) == (b"body", 0o600)


FORGED = "a\nFORGED = true\x1b[31m\x9bm\u2028"


def test_text_of_a_peer_starts_no_line_and_controls_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = Table("#Client")
    table.add(FORGED)
    table.print()
    assert capsys.readouterr().out.splitlines() == [
        "#Client",
        r"a\nFORGED = true\x1b[31m\x9bm\u2028",
    ]
    print_message(StoredMessage("T", FORGED.encode(), {"TAGS": FORGED}), [], "utf-8")
    printed = capsys.readouterr().out
    assert "\nFORGED" not in printed
    assert "\x1b" not in printed
    print_document({"tags": FORGED})
    line = capsys.readouterr().out
    assert line.rstrip("\n").isprintable()
    assert msgspec.json.decode(line) == {"tags": FORGED}
