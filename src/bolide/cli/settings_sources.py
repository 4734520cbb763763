"""Settings of a NameServer or controller from all sources, as text by RocketMQ's keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bolide.config import Ignored, from_environment, options_of, to_texts
from bolide.logs import LogLevel
from bolide.remoting.tls_settings import DEFAULT_TLS_FILE, tls_texts


def merge_texts(
    kind: type[Any],
    prefix: str,
    file: Mapping[str, str],
    level: LogLevel,
    chosen: Mapping[str, str],
) -> dict[str, str]:
    """Settings of tls.properties, file, environment and command line, in increasing priority.

    Args:
        prefix: of the variables in the environment.
    """
    texts = {**file, **from_environment(kind, prefix), **chosen}
    named = texts.pop("tls.config.file", "").strip()
    if named or DEFAULT_TLS_FILE.exists():
        texts = tls_texts(Path(named) if named else DEFAULT_TLS_FILE) | texts
    return {"logLevel": level} | texts


def print_config(config: Any, ignored: Mapping[str, Ignored]) -> None:
    texts = to_texts(config)
    for key, found in options_of(type(config)).items():
        # The value of a secret is not printed, only its commented key.
        print(f"# {found.doc}\n{'#' if found.secret else ''}{key}={texts.get(key, '')}")
    print("\n# Known to RocketMQ, without effect here:")
    for key, item in ignored.items():
        print(f"# {key}={item.default}  ({item.reason})")
