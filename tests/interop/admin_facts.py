"""What a command of mqadmin told, without how it told it: blanks, order, and what passes."""

import re
from collections.abc import Callable, Iterable

from bolide.protocol import fastjson

Facts = object

TROUBLE = re.compile(r"^\s*at |Exception|^For more information|^See http|^\s*\.\.\. \d+ more")
"""Lines of a Java stack trace; some stand where nothing is wrong."""

OF_COMMANDS = re.compile(r"(Made|Ordered|Plain)-|TOOLS_CONSUMER")
"""Topics and groups that the commands themselves make."""

STEADY_FIGURES = {"brokerActive", "bootTimestamp", "commitLogMinOffset", "brokerVersionDesc"}


def facts(command: str, printed: str) -> Facts:
    """What the command told; comparable between ours and Java's."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    told = [line for line in lines if line and not TROUBLE.search(line)]
    return READERS.get(command, sorted)(told)


def _route(lines: Iterable[str]) -> Facts:
    return fastjson.parse("".join(lines))


def _without_rates(lines: Iterable[str]) -> Facts:
    return sorted(line for line in lines if "TPS:" not in line)


def _lasting(lines: Iterable[str]) -> Facts:
    return sorted(line for line in lines if not OF_COMMANDS.search(line))


def _brokers(lines: Iterable[str]) -> Facts:
    """Up to the version; what follows are rates, times and disk space."""
    return sorted(re.sub(r"(V\d_\d_\d).*", r"\1", line) for line in lines)


def _names_only(lines: Iterable[str]) -> Facts:
    """Cluster and broker: the totals grow while the commands run."""
    return [line.split()[:2] for line in lines]


def _figures(lines: Iterable[str]) -> Facts:
    pairs = dict(re.split(r" ?: ?", line, maxsplit=1) for line in lines)
    return {key: value if key in STEADY_FIGURES else "" for key, value in pairs.items()}


def _three_columns(lines: Iterable[str]) -> Facts:
    rows = (re.sub(r"#(\w+) (\w+)", r"#\1\2", line) for line in lines)
    return sorted(row.split()[:3] for row in rows)


def _message(lines: Iterable[str]) -> Facts:
    """Titles and values. Where nobody ever connected, Java has an error instead of a track."""
    found = {}
    for line in lines:
        track = re.match(r"MessageTrack \[consumerGroup=([\w-]+), trackType=(\w+)", line)
        title, _, value = (*track.groups(), "") if track else line.partition(": ")
        kept = track.group(2) if track else value
        found[title] = sorted(kept.strip("{}").split(", ")) if title == "Properties" else kept
    found.pop("facts-sleepers", None)
    found.pop("WARN: No Consumer", None)
    return found


def _consumed(lines: Iterable[str]) -> Facts:
    wanted = r"queueId=\d+|storeSize=\d+|queueOffset=\d+|msgId=\w+|bodyCRC=\d+|BODY: .*"
    wanted += r"|bornTimestamp=\d+|storeTimestamp=\d+|commitLogOffset=\d+"
    return [re.findall(wanted, line) for line in lines if line.startswith("MSGID")]


def _sent(lines: Iterable[str]) -> Facts:
    return [re.sub(r"\b[0-9A-F]{32}\b", "<id>", line) for line in lines]


READERS: dict[str, Callable[[list[str]], Facts]] = {
    "route": _route,
    "status": _without_rates,
    "topics": _lasting,
    "topics with groups": _lasting,
    "clusters": _brokers,
    "cluster totals": _names_only,
    "broker status": _figures,
    "progress": _without_rates,
    "all progress": _lasting,
    "by id": _message,
    "by key": _three_columns,
    "by unique key": _message,
    "consume": _consumed,
    "send": _sent,
}
