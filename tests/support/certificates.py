"""Certificates made by the `openssl` command: self-signed ones, and those of an authority."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

LOCAL = "DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key; the serial number is as Python's ssl prints it."""

    certificate: Path
    key: Path
    serial: str

    def replace(self, other: "Pair") -> None:
        """Put the contents of another pair in place of this one's, each in one step."""
        for ours, theirs in ((self.key, other.key), (self.certificate, other.certificate)):
            aside = ours.with_suffix(".new")
            shutil.copyfile(theirs, aside)
            aside.replace(ours)


def make_pair(directory: Path, name: str, *, serial: int = 0xB0, password: str = "") -> Pair:
    """Make a pair for `localhost`, or skip the test where there is no openssl."""
    openssl = _openssl()
    pair = Pair(directory / f"{name}.pem", directory / f"{name}.key", f"{serial:X}")
    protection = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    command = [
        openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-keyout", str(pair.key), "-out", str(pair.certificate), "-days", "2",
        "-subj", f"/CN={name}", "-set_serial", str(serial), *protection,
        "-addext", f"subjectAltName={LOCAL}",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return pair


class Authority:
    """A certificate authority in a directory, which signs pairs."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._own = make_pair(directory, name)
        self._count = 0x1000

    @property
    def certificate(self) -> Path:
        return self._own.certificate

    def sign(self, name: str, *, names: str = LOCAL, days: int = 2, key: str = "ec") -> Pair:
        """Make a pair with these alternative names; `days=-1` makes an expired certificate."""
        self._count += 1
        serial = f"{self._count:X}"
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key", serial)
        request = self._directory / f"{name}.csr"
        kind = ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"] if key == "ec" else ["rsa:2048"]
        extensions = ["-addext", f"subjectAltName={names}"] if names else []
        for command in (
            ["req", "-newkey", *kind, "-nodes", "-keyout", str(pair.key), "-out", str(request),
             "-subj", f"/O={name}", *extensions],
            ["x509", "-req", "-in", str(request), "-out", str(pair.certificate),
             "-CA", str(self._own.certificate), "-CAkey", str(self._own.key),
             "-set_serial", str(self._count), "-days", str(days), "-copy_extensions", "copy"],
        ):  # fmt: skip
            subprocess.run([_openssl(), *command], check=True, capture_output=True)
        return pair


def _openssl() -> str:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is not on PATH: install openssl")
    return openssl
