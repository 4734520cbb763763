"""What a command of mqadmin told, without how it told it: blanks, order, and what passes."""

import json
import re
from collections.abc import Callable, Iterable

from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import TopicRoute

Facts = object

TROUBLE = re.compile(
    r"at |\.\.\. \d+ more|Caused by|For more information|See http|org\.apache\.\S+:"
)
"""Lines of a Java stack trace begin so; some stand where nothing is wrong."""

MADE = re.compile(r"(Made|Ordered|Plain|sleepers)-|TOOLS_CONSUMER")
"""Topics and groups that the commands themselves make."""

STEADY_FIGURES = {"brokerActive", "bootTimestamp", "commitLogMinOffset", "brokerVersionDesc"}

_OF_A_PULL = re.compile("(MIN|MAX)_OFFSET=")
"""Properties that Java's client adds to a message that it pulls."""

# 4.9 has no more than these; the columns and lines that it lacks are compared with 5.x alone.
GROUP_FIELDS = {
    "groupName",
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "retryQueueNums",
    "retryMaxTimes",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable",
}


def facts(command: str, printed: str) -> Facts:
    """What the command told; comparable between ours and Java's."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    return READERS.get(command, _plain)([line for line in lines if line])


def _plain(lines: Iterable[str]) -> Facts:
    return sorted(line for line in lines if not TROUBLE.match(line))


def _topic(lines: Iterable[str]) -> Facts:
    text = "\n".join(lines).replace(", attributes={}", "")
    return _plain(text.replace("]create", "]\ncreate").splitlines())  # 4.9 does not end a line


def _group(lines: Iterable[str]) -> Facts:
    """Field by field."""
    pairs = [pair for line in lines for pair in re.findall(r"(\w+)=([\w-]+)", line)]
    return {name: value for name, value in pairs if name in GROUP_FIELDS}


def _route(lines: Iterable[str]) -> Facts:
    return fastjson.decode("".join(lines), TopicRoute)


def _status(lines: Iterable[str]) -> Facts:
    return sorted(line for line in lines if "TPS:" not in line)


def _lasting(lines: Iterable[str]) -> Facts:
    return sorted(line for line in lines if not MADE.search(line))


def _brokers(lines: Iterable[str]) -> Facts:
    """Up to the version; what follows are rates, times and disk space."""
    rows = (line for line in lines if not line.startswith("#"))
    return sorted(re.sub(r"( V\d_\d_\d| <version>).*", r"\1", row) for row in rows)


def _totals(lines: Iterable[str]) -> Facts:
    """Cluster and broker: the totals grow while the commands run."""
    return [line.split()[:2] for line in lines]


def _figures(lines: Iterable[str]) -> Facts:
    pairs = dict(re.split(r" ?: ?", line, maxsplit=1) for line in lines)
    return {key: value if key in STEADY_FIGURES else "" for key, value in pairs.items()}


def _progress(lines: Iterable[str]) -> Facts:
    """Topic, broker, queue, both offsets, their difference, and the time that stands last."""
    rows = [line.split() for line in lines if re.search(r" broker-a \d", line)]
    totals = [found for line in lines for found in re.findall(r"Diff Total: (\d+)", line)]
    return sorted([*row[:6], *row[-2:]] for row in rows), totals


def _three_columns(lines: Iterable[str]) -> Facts:
    return sorted(line.split()[:3] for line in lines if not line.startswith("#"))


def _message(lines: list[str]) -> Facts:
    """Titles and values, and which group has it. Where no client of a group ever connected, Java
    has an error instead."""
    text = "\n".join(lines)
    found: dict[str, object] = dict(re.findall(r"^([A-Z][\w ]+): +(.*)$", text, re.MULTILINE))
    properties = str(found["Properties"]).strip("{}").split(", ")
    found["Properties"] = sorted(each for each in properties if not _OF_A_PULL.match(each))
    found.pop("OffsetID", None)  # one of Java's commands leaves it out
    tracks = re.findall(r"consumerGroup=([\w-]+), trackType=(\w+)", text)
    return found, sorted(track for track in tracks if not track[0].startswith("sleepers"))


def _consumed(lines: Iterable[str]) -> Facts:
    wanted = r"queueId=\d+|storeSize=\d+|queueOffset=\d+|msgId=\S+|bodyCRC=\d+|BODY: .*"
    wanted += r"|bornTimestamp=\S+|storeTimestamp=\S+|commitLogOffset=\d+"
    return [re.findall(wanted, line) for line in lines if line.startswith("MSGID")]


def _sent(lines: Iterable[str]) -> Facts:
    return [re.sub(r"\b[0-9A-F]{32,}\b", "<id>", line) for line in lines]


def _group_deleted(lines: Iterable[str]) -> Facts:
    """4.9 tells of the group's topics too."""
    return sorted(line for line in lines if "subscription group" in line)


def _moved(lines: Iterable[str]) -> Facts:
    return sorted(line for line in lines if line.startswith("broker-a"))


def _printed(lines: Iterable[str]) -> Facts:
    """Messages and other lines; Java goes through the queues in no order."""
    found = list(lines)
    others = [line for line in found if not line.startswith("MSGID")]
    return sorted(map(str, _consumed(found))), _plain(others)  # type: ignore[call-overload]


def _send_times(lines: Iterable[str]) -> Facts:
    """Without the times."""
    return [line.split()[:3] for line in lines if not line.startswith("Avg RT: ")]


def _producers(lines: Iterable[str]) -> Facts:
    """Without those of commands, and without times; ours close their connections sooner."""
    shown = (re.sub(r"lastUpdateTimestamp=\S+", "", line) for line in lines)
    return sorted(line for line in shown if "facts-writers" in line)


def _group_config(lines: Iterable[str]) -> Facts:
    pairs = [line.split("=", 1) for line in lines if re.match(r"\w+ *= ", line)]
    found = {name.strip(): value.strip() for name, value in pairs}
    return {name: value for name, value in found.items() if name in GROUP_FIELDS}


def _allocation(lines: Iterable[str]) -> Facts:
    """How many queues each gets: Java does not sort them."""
    shares = json.loads("".join(lines))["result"]
    return {member: len(queues) for member, queues in shares.items()}


READERS: dict[str, Callable[[list[str]], Facts]] = {
    "create": _topic,
    "create ordered": _topic,
    "create with defaults": _topic,
    "perm": _topic,
    "route": _route,
    "status": _status,
    "topics": _lasting,
    "topics with groups": _lasting,
    "clusters": _brokers,
    "cluster totals": _totals,
    "broker status": _figures,
    "create group": _group,
    "progress": _progress,
    "all progress": _lasting,
    "by id": _message,
    "by key": _three_columns,
    "by unique key": _message,
    "consume": _consumed,
    "send": _sent,
    "reset": _moved,
    "skip": _moved,
    "print": _printed,
    "print tags": _printed,
    "print by queue": _printed,
    "by offset": _message,
    "send times": _send_times,
    "all producers": _producers,
    "group config": _group_config,
    "allocation": _allocation,
    "delete group": _group_deleted,
}
