"""Which releases of which programs the interop tests run, from the files that pin them."""

import re
import tomllib
from pathlib import Path

INTEROP = Path(__file__).resolve().parents[1] / "tests" / "interop"

_PROGRAMS = {
    "4.9": ("RocketMQ 4.9", "NameServer and broker"),
    "4.9 client": ("RocketMQ 4.9, client side", "client and `mqadmin`"),
    "5.x": ("RocketMQ 5.x", "NameServer, broker, client, `mqadmin` and examples"),
    "4.2 client": ("RocketMQ 4.2", "client"),
    "4.7 client": ("RocketMQ 4.7", "client"),
    "proxy": ("RocketMQ 5.x, proxy", "in front of our broker"),
    "grpc client": (
        "`rocketmq-client-java`",
        "gRPC client, through the proxy: messages of every kind, simple and push consumers",
    ),
    "streams": ("RocketMQ Streams", "a word count that is stopped and goes on from its state"),
    "spring": (
        "`rocketmq-spring-boot-starter`",
        "Spring Boot with `RocketMQTemplate`, listeners, replies, dead letters, transactions",
    ),
}


def programs() -> list[tuple[str, str, str]]:
    """Rows of name, exact version and what is run of it."""
    releases = tomllib.loads((INTEROP / "versions.toml").read_text())["releases"]
    rows = []
    for name, release in releases.items():
        title, what = _PROGRAMS[name]
        rows.append((title, release["version"], what))
    return [*rows, ("`rocketmq-client-go/v2`", _go_version(), "client for Go")]


def _go_version() -> str:
    found = re.search(r"rocketmq-client-go/v2 v(\S+)", (INTEROP / "go" / "go.mod").read_text())
    assert found
    return found[1]
