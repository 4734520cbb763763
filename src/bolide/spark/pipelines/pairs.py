"""Options of a source or a sink, as words of a command line."""

from collections.abc import Iterable

from bolide.errors import ConfigError


def pairs(words: Iterable[str], *, option: str) -> dict[str, str]:
    """By name, of `KEY=VALUE` each.

    Raises:
        ConfigError: one is not; names the option that it was given for.
    """
    return dict(_pair(word, option) for word in words)


def _pair(word: str, option: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"{option} {word!r} is not of the form key=value")
    return key.strip(), value.strip()
