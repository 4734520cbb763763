"""Our player with Apache's client for Go, built by the Go toolchain if there is one."""

import hashlib
import os
import re
import subprocess
from functools import cache
from pathlib import Path

from tests.interop.apache import (
    PATIENCE_AHEAD,
    PATIENCE_IN_A_TEST,
    CompilationFailed,
    Unobtainable,
    cache_directory,
    locked,
    tool,
)

SOURCES = Path(__file__).resolve().with_name("go")
ADVICE = "install Go (1.22 or newer)"


def client_version() -> str:
    """The release of the client that go.mod pins."""
    pinned = re.search(r"rocketmq-client-go/v2 v(\S+)", (SOURCES / "go.mod").read_text())
    assert pinned
    return pinned[1]


@cache
def cells() -> frozenset[str]:
    """The cells of the matrix that the player has."""
    listed = (SOURCES / "player.go").read_text()
    return frozenset(re.findall(r'^\t"([a-z-]+)":\s+play', listed, re.MULTILINE))


@cache
def obtain(patience: float = PATIENCE_IN_A_TEST) -> Path:
    """The player, built if need be."""
    go = tool("go", ADVICE)
    directory = cache_directory() / f"go-{client_version()}"
    directory.mkdir(parents=True, exist_ok=True)
    player = directory / _fingerprint()
    with locked(directory.with_name(f"{directory.name}.lock")):
        if not player.exists():
            _download(go, patience)
            _build(go, player, patience)
    return player


def _download(go: str, patience: float) -> None:
    what = f"Apache's client {client_version()} for Go could not be fetched"
    advice = "run `python -m tests.interop.apache` where Go reaches a proxy that has it"
    try:
        done = _run([go, "mod", "download"], patience)
    except subprocess.TimeoutExpired:
        raise Unobtainable(f"{what} within {patience:.0f} s; {advice}") from None
    if done.returncode:
        raise Unobtainable(f"{what}; {advice}. Go said:\n{done.stdout.strip()[:2000]}")


def _build(go: str, player: Path, patience: float) -> None:
    partial = player.with_name("partial")
    try:
        done = _run([go, "build", "-mod=readonly", "-o", str(partial), "."], patience)
    except subprocess.TimeoutExpired:
        raise Unobtainable(f"the player in Go is not built within {patience:.0f} s") from None
    if done.returncode:
        raise CompilationFailed(f"the player in Go:\n{done.stdout}")
    partial.rename(player)


def _run(command: list[str], patience: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=SOURCES,
        env=os.environ | {"GOTOOLCHAIN": "local"},
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience,
    )


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for source in sorted((*SOURCES.glob("*.go"), *SOURCES.glob("go.*"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def main() -> None:
    try:
        player = obtain(PATIENCE_AHEAD)
        print(f"Apache RocketMQ client for Go: {client_version()}, player in {player.parent}")
    except Unobtainable as missing:
        print(f"Apache RocketMQ client for Go: its tests will be skipped: {missing}")
