"""Output formats of the admin commands."""

import stat
import tempfile
from pathlib import Path

import pytest

from bolide.cli.admin.output import print_message, time_text
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
