"""White lists: patterns of addresses in RocketMQ's syntax (`RemoteAddressStrategyFactory`).

| Pattern | Matches |
| --- | --- |
| empty | no address |
| `*`, `*.*.*.*`, `*:*:*:*:*:*:*:*` | every address |
| `192.168.1.7`, `2001:db8::7` | this address |
| `192.168.1.7,192.168.1.9` | each of them |
| `192.168.1.{7,9}`, `2001:db8:0:0:0:0:0:{7,9}` | the same, for the last part |
| `192.168.0-100.*`, `2001:db8::1-ff:*` | parts in a range, or any |
| `2001:db8:*`, `2001:db8:1-ff` | all IPv6 addresses that begin so |

RocketMQ stops reading an IPv4 pattern at its first range, so that `192.168.0-100.1-10` matches
192.168.50.200 there. Here every part counts. It takes `::` directly before a range for one part:
`2001:db8::1-ff` is `2001:db8:0:1-ff` there. Here `::` stands for all parts that are missing.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

Ranges = tuple[tuple[int, int], ...]
"""Lowest and highest value of each part: four parts for IPv4, eight for IPv6."""

Pattern = tuple[Ranges, ...]
"""Alternatives; an address matches one of them."""

Parts = tuple[int, ...]
"""The four or eight numbers of an address."""

_ANY_PART = "*"
_V4_PARTS, _V4_HIGHEST = 4, 255
_V6_PARTS, _V6_HIGHEST = 8, 0xFFFF
_EVERY_ADDRESS = {"*", "*.*.*.*", "*:*:*:*:*:*:*:*"}
_EVERYTHING: Pattern = (((0, _V4_HIGHEST),) * _V4_PARTS, ((0, _V6_HIGHEST),) * _V6_PARTS)


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern; an empty one matches no address.

    Raises:
        ValueError: it is none of those above; the text says why.
    """
    text = text.strip()
    if not text:
        return ()
    if text in _EVERY_ADDRESS:
        return _EVERYTHING
    if text.endswith("}"):
        return tuple(map(_single, _last_parts(text)))
    if "," in text:
        return tuple(_single(each) for each in text.split(",") if each.strip())
    if _ANY_PART in text or "-" in text:
        return (_ipv6_ranges(text) if ":" in text else _ipv4_ranges(text),)
    return (_single(text),)


def parts_of(host: str) -> Parts | None:
    """The numbers of an address; None for what is no address.

    An IPv4 address that a dual-stack socket reports as IPv6 is an IPv4 address, as in Java.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return _parts(address)


def matches(patterns: Iterable[Pattern], parts: Parts) -> bool:
    """Whether one of the patterns matches an address."""
    return any(_is_within(parts, ranges) for pattern in patterns for ranges in pattern)


def _is_within(parts: Parts, ranges: Ranges) -> bool:
    return len(parts) == len(ranges) and all(
        low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True)
    )


def _parts(address: IPv4Address | IPv6Address) -> Parts:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(int.from_bytes(packed[at : at + 2]) for at in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def _single(text: str) -> Ranges:
    try:
        parts = _parts(ip_address(text.strip()))
    except ValueError:
        raise ValueError(f"{text.strip()!r} is not an IP address") from None
    return tuple((part, part) for part in parts)


def _last_parts(text: str) -> list[str]:
    """Expand `192.168.1.{7,9}`; braces are allowed in the last part only."""
    head, brace, tail = text[:-1].partition("{")
    if not brace or not head.endswith((".", ":")) or not tail.strip():
        raise ValueError(f"{text!r}: braces must hold the values of the last part")
    return [head + each.strip() for each in tail.split(",")]


def _ipv4_ranges(text: str) -> Ranges:
    words = text.split(".")
    if len(words) != _V4_PARTS:
        raise ValueError(f"{text!r} must have four parts, as in 192.168.0-100.*")
    return tuple(_range(word, 10, _V4_HIGHEST) for word in words)


def _ipv6_ranges(text: str) -> Ranges:
    head, gap, tail = text.partition("::")
    before, after = _words(head), _words(tail)
    missing = _V6_PARTS - len(before) - len(after)
    if gap:
        if missing < 1 or "::" in tail:
            raise ValueError(f"{text!r} is not an IPv6 address with ranges")
        before += ["0"] * missing
    elif missing > 0 and (before[-1] == _ANY_PART or "-" in before[-1]):
        before += [_ANY_PART] * missing  # a prefix: all that begins so
    words = before + after
    if len(words) != _V6_PARTS:
        raise ValueError(f"{text!r} must have eight parts, as in 2001:db8::1-ff:*")
    return tuple(_range(word, 16, _V6_HIGHEST) for word in words)


def _words(text: str) -> list[str]:
    return text.split(":") if text else []


def _range(word: str, base: int, highest: int) -> tuple[int, int]:
    word = word.strip()
    if word == _ANY_PART:
        return 0, highest
    first, minus, last = word.partition("-")
    low = _number(first, base, highest)
    high = _number(last, base, highest) if minus else low
    if low > high:
        raise ValueError(f"the range {word} ends before it begins")
    return low, high


def _number(word: str, base: int, highest: int) -> int:
    # `int` alone would take a sign, blanks and underscores.
    digits = "0123456789abcdef"[:base]
    if not word or len(word) > 4 or any(each not in digits for each in word.lower()):
        raise ValueError(f"{word!r} is not a part of an IP address")
    number = int(word, base)
    if number > highest:
        raise ValueError(f"{word} is over {highest:x}" if base == 16 else f"{word} is over 255")
    return number
