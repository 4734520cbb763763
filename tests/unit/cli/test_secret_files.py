"""Servers report files of settings whose secrets everybody can read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.cli import broker_settings, name_server
from bolide.remoting.tls_settings import tls_texts


@pytest.mark.parametrize(
    "text",
    [
        'initAuthenticationUser={"username":"a","password":"b"}',
        'innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"b"}',
        "tls.server.keyPassword=x",
        "tls.client.keyPassword=x",
    ],
)
def test_a_readable_file_with_a_secret_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    file = tmp_path / "server.conf"
    file.write_text(text)
    readers: list[Callable[[], object]] = [
        lambda: broker_settings.file_texts(file, {}, quiet=True),
        lambda: name_server.file_texts(file, {}, quiet=True),
    ]
    if text.startswith("tls."):
        readers.append(lambda: tls_texts(file))
    for read in readers:
        for mode, lines in ((0o644, 1), (0o600, 0)):
            file.chmod(mode)
            caplog.clear()
            read()
            assert len([each for each in caplog.messages if "chmod 600" in each]) == lines
