"""Self-signed certificates, made by the `openssl` command."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


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
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is not on PATH: install openssl")
    pair = Pair(directory / f"{name}.pem", directory / f"{name}.key", f"{serial:X}")
    protection = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    command = [
        openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-keyout", str(pair.key), "-out", str(pair.certificate), "-days", "2",
        "-subj", f"/CN={name}", "-set_serial", str(serial), *protection,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return pair
