"""Writes the pages that come from the code: settings, options, commands, codes and attributes.

`python -m docs.reference` writes them, `python -m docs.reference --check` only tells whether one
is stale. The same code gives the same page on every machine.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer
from typer.core import TyperCommand, TyperGroup

from bolide.admin.settings import default_text, in_effect, members, values_text
from bolide.arrow.schema import PROPERTIES, TIMESTAMP, VALUE, message_schema
from bolide.broker import assembly as broker
from bolide.broker.metadata.topic_attributes import TOPIC_ATTRIBUTES
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.settings.without_effect import IGNORED as IGNORED_BY_BROKER
from bolide.broker.settings.without_effect import IGNORED_IN_FILES
from bolide.cli import DAMAGE_FOUND, START_FAILED, app
from bolide.cli.program import LazyCommand
from bolide.cli.tls_options import tls_parameters
from bolide.client.instance.server_requests import ServerRequests
from bolide.config import Option, options_of
from bolide.controller import server as controller
from bolide.controller.config import ALL_IGNORED as IGNORED_BY_CONTROLLER
from bolide.controller.config import ControllerConfig
from bolide.namesrv import handlers as name_server
from bolide.namesrv.config import ALL_IGNORED as IGNORED_BY_NAME_SERVER
from bolide.namesrv.config import NameServerConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.requests import REQUESTS, Role
from bolide.remoting.dispatch import handled_codes
from bolide.spark.commit_log import CommitLogOptions
from bolide.spark.options import ConnectionOptions, SourceOptions
from bolide.spark.sink.options import SinkOptions
from bolide.store import config as store_settings
from bolide.store.config import StoreConfig
from bolide.version import __version__
from docs.interop import programs
from docs.support import (
    GROUP_ATTRIBUTE_VALUES,
    LEFT_OUT,
    NEVER_SENT,
    OURS_BEGIN,
    PARTLY,
    REFUSED,
    REFUSED_GROUP_ATTRIBUTES,
    REFUSED_TOPIC_ATTRIBUTES,
    RENAMED_RESPONSES,
    TOPIC_ATTRIBUTE_VALUES,
)

HERE = Path(__file__).resolve().parent

_NOTE = "<!-- Written by `make docs` from the code: change the code, not this page. -->"
_ADMIN = "admin "
_UNWRAPPED = "\b\n"
_ENVIRONMENT = "BOLIDE_NAMESRV"
_ENVIRONMENT_OF_CONTROLLER = "BOLIDE_CONTROLLER"
_ROLES = {
    Role.NAMESRV: "NameServer",
    Role.BROKER: "broker",
    Role.CLIENT: "client",
    Role.CONTROLLER: "controller",
}
_SPARK_TYPES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    TIMESTAMP: "timestamp",
    PROPERTIES: "map<string,string>",
}
_MEANINGS = {
    "topic": "The topic that was read.",
    "broker": "The name of the broker that has the message.",
    "queue_id": "The queue of the topic on that broker.",
    "queue_offset": "The message's offset in its queue.",
    "physical_offset": "The message's offset in the broker's commit log.",
    "message_id": "The id that its sender gave it, else `offset_message_id`.",
    "offset_message_id": "The id made of the broker's address and the physical offset.",
    "keys": "The keys, separated by blanks; null if there are none.",
    "tags": "The tag; null if there is none.",
    "body": "The content, decompressed.",
    "born_timestamp": "When it was sent, by the sender's clock.",
    "store_timestamp": "When it was stored, by the broker's clock.",
    "born_host": "Where it was sent from: `ip:port`.",
    "store_host": "Where it was stored: `ip:port`.",
    "reconsume_times": "How often a consumer group has failed to process it.",
    "sys_flag": "Bits of the protocol, such as the kind of a transactional message.",
    "flag": "A number that the sender chose.",
    "properties": "All properties, including those of the protocol; with `includeProperties`.",
    VALUE: "The JSON body, in the columns of `valueSchema`.",
}
_TLS_NAMES = {found.name for found in tls_parameters()}
_SENT_BY_NAMESRV = {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE}


def namesrv_config() -> str:
    """Every setting of the NameServer."""
    rows = [
        (*_option_row(found), f"`{_ENVIRONMENT}_{found.field.upper()}`", in_effect(found))
        for found in options_of(NameServerConfig).values()
    ]
    ignored = [(f"`{key}`", item.reason) for key, item in IGNORED_BY_NAME_SERVER.items()]
    return f"""{_NOTE}

# NameServer settings

These are all the settings of `bolide namesrv`.
[Run a NameServer](../how-to/run-a-nameserver.md) explains where to set them.

Durations are in the unit that the description states, as in RocketMQ's files.
The last column says when a change by `mqadmin updateNamesrvConfig` takes effect.
Settings that are fixed cannot be changed that way,
[whoever asks](../security.md#what-no-request-changes), nor can the keys in `configBlackList`.
A star marks a key that RocketMQ's `namesrv.conf` does not have.
The starred keys that begin with `tls.` or `com.` are system properties of the JVM there.
The keys of a controller in the same process are in
[Controller settings](controller-config.md).

{_table(("Key", "Default", "Values", "Meaning", "Environment variable", "In effect"), rows)}

## Keys without effect

RocketMQ has these keys. They are accepted, and a warning gives the reason why they have no effect.

{_table(("Key", "Why"), ignored)}
"""


def controller_config() -> str:
    """Every setting of a controller."""
    prefix = _ENVIRONMENT_OF_CONTROLLER
    rows = [
        (*_option_row(found), f"`{prefix}_{found.field.upper()}`", in_effect(found))
        for found in options_of(ControllerConfig).values()
    ]
    ignored = [(f"`{key}`", item.reason) for key, item in IGNORED_BY_CONTROLLER.items()]
    return f"""{_NOTE}

# Controller settings

These are all the settings of `bolide controller`.
[Run controllers](../how-to/run-controllers.md) explains them.
A controller inside a NameServer, with `enableControllerInNamesrv=true`, has its settings in the
file of the NameServer; those that both have, such as `bindAddress`, apply to both. In the
environment the common ones begin with `BOLIDE_NAMESRV_`, its own ones with that or as below.

Durations are in the unit that the description states, as in RocketMQ's files.
The last column says when a change by RocketMQ's `mqadmin updateControllerConfig` takes effect.
Each controller has its own settings. What is fixed changes
[only at a restart](../security.md#what-no-request-changes), nor can the keys in `configBlackList`
be changed.
A star marks a key that RocketMQ's `controller.conf` does not have.

{_table(("Key", "Default", "Values", "Meaning", "Environment variable", "In effect"), rows)}

## Keys without effect

RocketMQ has these keys. They are accepted, and a warning gives the reason why they have no effect.

{_table(("Key", "Why"), ignored)}
"""


def store_config() -> str:
    """Every setting of the store."""
    rows = [(*_option_row(found), in_effect(found)) for found in options_of(StoreConfig).values()]
    ignored = [(f"`{key}`", item.reason) for key, item in store_settings.IGNORED.items()]
    return f"""{_NOTE}

# Store settings

These are the settings of the [store](../explanation/durability.md), as written in a
`broker.conf`. `bolide store verify -c broker.conf` reads them from there and ignores other keys.

Durations and ratios are in the unit that the description states, as in RocketMQ's files.
A list has the separator that the description states.
The last column says when a change at run time takes effect; what is fixed changes
[only at a restart](../security.md#what-no-request-changes).
Spellings of older releases, such as `mapedFileSizeCommitLog`, are accepted too.

{_table(("Key", "Default", "Values", "Meaning", "In effect"), rows)}

## Keys without effect

RocketMQ has these keys. They are accepted, and a warning gives the reason why they have no effect.

{_table(("Key", "Why"), ignored)}
"""


def broker_config() -> str:
    """Every setting of the broker."""
    rows = [(*_option_row(found), in_effect(found)) for found in options_of(BrokerConfig).values()]
    ignored = [(f"`{key}`", item.reason) for key, item in IGNORED_BY_BROKER.items()]
    in_files = [(f"`{key}`", item.reason) for key, item in IGNORED_IN_FILES.items()]
    return f"""{_NOTE}

# Broker settings

These are the settings of `bolide broker`, as written in a `broker.conf`. The same file contains
the [settings of its store](store-config.md).
[Run a broker](../how-to/run-a-broker.md) explains where to set them.

Durations are in the unit that the description states, as in RocketMQ's files.
The last column says when a change by `mqadmin updateBrokerConfig` takes effect; what is fixed
cannot be changed that way, [whoever asks](../security.md#what-no-request-changes).
A star marks a key that RocketMQ's `broker.conf` does not have.
Each can be set in the environment too: `listenPort` as `BOLIDE_BROKER_LISTEN_PORT`.

{_table(("Key", "Default", "Values", "Meaning", "In effect"), rows)}

## Keys without effect

RocketMQ has these keys. They are accepted, and a warning gives the reason why they have no effect.

{_table(("Key", "Why"), ignored)}

These are in many a `broker.conf`, though they are no settings of RocketMQ's broker.
They are accepted with a warning too.

{_table(("Key", "Why"), in_files)}
"""


def cli() -> str:
    """Every command and its options."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    found = ((name, command) for name, command in _commands(group) if not name.startswith(_ADMIN))
    commands = "\n".join(_command(name, command) for name, command in found)
    return f"""{_NOTE}

# Commands

`bolide`, and each command below it, prints its help with `-h` or `--help`.
`python -m bolide` is the same program.
`mqnamesrv` is `bolide namesrv` under the name it has in RocketMQ.
`mqcontroller` is `bolide controller`.
`mqbroker` is `bolide broker`, `mqadmin` is `bolide admin`: see [admin commands](admin-commands.md).

| Exit code | Meaning |
| --- | --- |
| 0 | The command succeeded, or was stopped by a signal. |
| {DAMAGE_FOUND} | `bolide store verify` found damage; an admin command was refused or failed. |
| 2 | The command line has an unknown option or command. |
| {START_FAILED} | The command could not start. One line on standard error gives the reason. |

## bolide

{_parameters(group)}

{commands}"""


def admin_commands() -> str:
    """Every command of mqadmin."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    found = [(name, command) for name, command in _commands(group) if name.startswith(_ADMIN)]
    rows = [
        (
            f"[{name.removeprefix(_ADMIN)}](#bolide-{name.lower().replace(' ', '-')})",
            _first(command),
        )
        for name, command in found
    ]
    commands = "\n".join(_command(name, command) for name, command in found)
    return f"""{_NOTE}

# Admin commands

`mqadmin` is `bolide admin`, with the names and option letters of RocketMQ's `mqadmin`.
[Administer a cluster](../how-to/administer.md) shows how to use them.

{_table(("Command", "What it does"), rows)}

## Credentials

Requests are signed with `BOLIDE_ACCESS_KEY` and `BOLIDE_SECRET_KEY` of the environment, or with the
keys in `$ROCKETMQ_HOME/conf/tools.yml`; see [Control access](../how-to/access-control.md).

## TLS

Every command has these options, also each `bolide bench` command.
[Use TLS](../how-to/tls.md) explains them.

{_options(tls_parameters())}

{commands}"""


def compatibility() -> str:
    """Request codes, response codes and attributes, and which of them work here."""
    answered = {role: _answered_by(role) for role in _ROLES}
    rows = [
        (str(int(code)), f"`{code.name}`", _who(kind.answered_by), _support(code, answered))
        for code, kind in sorted(REQUESTS.items())
    ]
    theirs = [row for row in rows if not row[1].startswith(f"`{OURS_BEGIN}")]
    ours = [row[:3] for row in rows if row not in theirs]
    groups = [
        *((f"`{name}`", here) for name, here in GROUP_ATTRIBUTE_VALUES.items()),
        *((f"`{name}`", f"refused: {why}") for name, why in REFUSED_GROUP_ATTRIBUTES.items()),
    ]
    wanted = Counter(role for kind in REQUESTS.values() for role in kind.answered_by)
    counts = [(name, str(wanted[role]), str(len(answered[role]))) for role, name in _ROLES.items()]
    return f"""{_NOTE}

# Compatibility

Bolide {__version__} has a NameServer, a controller, a broker and clients.
A server answers an unknown request with response code 3, `REQUEST_CODE_NOT_SUPPORTED`.

{_table(("Sent to a", "Request codes", "Answered by Bolide"), counts)}

Some codes are sent to more than one role. Our own codes are included.
The headers and bodies of all codes that a server or client answers are typed in `bolide.protocol`.

Unlike RocketMQ's, servers without access control take requests that administer
[over loopback only](security.md#who-administers-without-access-control).

The tests run our servers with brokers, clients and `mqadmin` of RocketMQ 4.9 and 5.x, and our
clients with RocketMQ's servers.
The [compatibility matrix](compatibility-matrix.md) has every client with every broker.

{_table(("Program", "Release", "What the tests run"), programs())}

RocketMQ Streams creates its shuffle and state topics as static topics.
The starter for Spring has the client of RocketMQ 5.3.2, in which a `sendAndReceive` that returns
the reply gives up at once, with any broker; with a callback it works.
RocketMQ's older client in C++, which is also in `rocketmq` 0.4.4 for Python, marks a batch with `1`
instead of `true`: RocketMQ's brokers store it as one message, Bolide stores its messages.
The client for Go gives the messages of a batch no unique ids; their ids are their places in the
log.

## What is refused by name

A broker refuses to open a store that has consume queues or tables in RocksDB, light topics
(`message.type=LITE`) or light message queues (`%LMQ%`); the error says what to do. Such topics
cannot be created, and sends to them are refused.

## Where a broker does more

POP brings the messages of a batch in a topic with `queue.type=BatchCQ` one by one, each with its
own invisible time. RocketMQ's broker pops such a batch as one message, which its clients do not
unwrap. A message of such a batch that a consumer sends back is stored for its retry by our broker;
RocketMQ's refuses that, and its clients send a copy instead.

## Request codes

{_table(("Code", "Name", "Sent to", "Here"), theirs)}

## Requests of our own

RocketMQ does not have these requests; its servers answer them as unknown requests.

{_table(("Code", "Name", "Sent to"), ours)}

## Response codes

Clients understand all of them. Servers send them as RocketMQ's do, except for those with a reason.

{_table(("Code", "Name", "Here"), _response_rows())}

## Topic attributes

{_table(("Attribute", "Here"), _attribute_rows())}

## Group attributes

{_table(("Attribute", "Here"), groups)}

## Left out

{_table(("What", "Why"), list(LEFT_OUT.items()))}
"""


def _response_rows() -> Iterator[tuple[str, ...]]:
    names = {number: name for name, number in RENAMED_RESPONSES.items()}
    for code in sorted(ResponseCode):
        unsent = NEVER_SENT.get(code)
        here = f"never sent: {unsent}" if unsent else "**supported**"
        old = f"; 4.9 sends it as `{names[code]}`" if code in names else ""
        yield str(int(code)), f"`{code.name}`", here + old


def _attribute_rows() -> Iterator[tuple[str, ...]]:
    for name in TOPIC_ATTRIBUTES:
        yield f"`{name}`", TOPIC_ATTRIBUTE_VALUES[name]
    for name, why in REFUSED_TOPIC_ATTRIBUTES.items():
        yield f"`{name}`", f"refused: {why}"


def spark_options() -> str:
    """Every option of the Spark source and sink."""
    shared = options_of(ConnectionOptions)
    return f"""{_NOTE}

# Spark options

These are the options of `format("rocketmq")`, as `.option("nameServer", "127.0.0.1:9876")` sets
them. Names may be written in any case; an unknown one is refused.
[What is exactly once](../explanation/spark-semantics.md) explains the guarantees.

## To reach a cluster

The source and the sink have these.

{_spark_table(shared)}

## To read

{_spark_table(_without(options_of(SourceOptions), shared))}

Offsets are JSON by topic, broker and queue id; each is the offset of the next message to read:
`{{"orders": {{"broker-a": {{"0": 23, "1": 118}}}}}}`.

## Columns to read

{_table(("Column", "Type", "Meaning"), _columns())}

## To write

{_spark_table(_without(options_of(SinkOptions), shared))}

## To read log files

These are the options of `format("rocketmq-commitlog")`; it needs no cluster.

{_spark_table(options_of(CommitLogOptions))}
"""


def _columns() -> Iterator[tuple[str, ...]]:
    for column in message_schema():
        yield f"`{column.name}`", f"`{_SPARK_TYPES[column.type]}`", _MEANINGS[column.name]
    yield f"`{VALUE}`", "`struct`", _MEANINGS[VALUE]


def _spark_table(options: Mapping[str, Option]) -> str:
    rows = [_option_row(found) for found in options.values()]
    return _table(("Option", "Default", "Values", "Meaning"), rows)


def _without(options: Mapping[str, Option], known: Mapping[str, Option]) -> dict[str, Option]:
    return {key: found for key, found in options.items() if key not in known}


PAGES: dict[Path, Callable[[], str]] = {
    HERE / "reference" / "namesrv-config.md": namesrv_config,
    HERE / "reference" / "controller-config.md": controller_config,
    HERE / "reference" / "broker-config.md": broker_config,
    HERE / "reference" / "store-config.md": store_config,
    HERE / "reference" / "cli.md": cli,
    HERE / "reference" / "admin-commands.md": admin_commands,
    HERE / "reference" / "spark-options.md": spark_options,
    HERE / "compatibility.md": compatibility,
}


def stale_pages() -> list[Path]:
    """The pages that differ from what the code says now."""
    return [
        path
        for path, page in PAGES.items()
        if not path.exists() or path.read_text(encoding="utf-8") != page()
    ]


def main(arguments: list[str]) -> None:
    """Write the pages that are stale; with --check only name them, and fail."""
    stale = stale_pages()
    if "--check" in arguments:
        names = ", ".join(str(path.relative_to(HERE.parent)) for path in stale)
        sys.exit(f"stale, run `make docs`: {names}" if stale else 0)
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(PAGES[path](), encoding="utf-8")


def _option_row(found: Option) -> tuple[str, ...]:
    return (
        f"`{found.key}`" + (" \\*" if found.ours else ""),
        _default(found),
        _values(found),
        found.doc + _other_spellings(found),
    )


def _other_spellings(found: Option) -> str:
    names = ", ".join(f"`{alias}`" for alias in found.aliases)
    return f" Also {names}." if names else ""


def _default(found: Option) -> str:
    text = default_text(found)
    return f"`{text}`" if text else ""


def _values(found: Option) -> str:
    names = ", ".join(f"`{member}`" for member in members(found))
    return names if found.low is None else values_text(found)


def _commands(group: TyperGroup, before: str = "") -> Iterator[tuple[str, TyperCommand]]:
    """All commands by their words, those of groups too."""
    for name, found in group.commands.items():
        if isinstance(found, LazyCommand):
            yield before + name, found.loaded
        elif isinstance(found, TyperGroup):
            yield from _commands(found, f"{before}{name} ")
        elif isinstance(found, TyperCommand):
            yield before + name, found


def _command(name: str, command: TyperCommand) -> str:
    words = [found.metavar for found in command.params if found.param_type_name == "argument"]
    own = name.rpartition(" ")[2]  # `run FILE` has its argument as its name
    usage = " ".join(
        ["bolide", name, "[OPTIONS]", *(word for word in words if word and word != own)]
    )
    example = f"\n{command.epilog.removeprefix(_UNWRAPPED)}\n" if command.epilog else ""
    return f"""## bolide {name}

{command.help}

    {usage}

{_parameters(command)}
{example}"""


def _first(command: TyperCommand) -> str:
    return (command.help or "").partition("\n")[0]


def _parameters(command: TyperCommand | TyperGroup) -> str:
    return _options(found for found in command.params if found.name not in _TLS_NAMES)


def _options(parameters: Iterable[Any]) -> str:
    rows = []
    for found in parameters:
        is_word = found.param_type_name == "argument"
        names = (
            [found.metavar or found.name or ""] if is_word else [*found.opts, *found.secondary_opts]
        )
        kind = "|".join(getattr(found.type, "choices", ())) or found.type.name
        value = "" if is_word or getattr(found, "is_flag", False) else f" <{kind}>"
        default = "" if found.default in (None, False) else f" Default: `{found.default}`."
        variable = getattr(found, "envvar", None) if found.name in _TLS_NAMES else None
        setting = f" Environment variable: `{variable}`." if variable else ""
        text = f"{getattr(found, 'help', '')}{default}{setting}"
        rows.append((", ".join(f"`{name}{value}`" for name in names), text))
    return _table(("Option", "Meaning"), rows) if rows else "It has no options."


def _answered_by(role: Role) -> set[RequestCode]:
    """The codes that one of our programs has a handler for."""
    groups: tuple[type, ...] = ()
    if role is Role.NAMESRV:
        groups = name_server.HANDLERS
    elif role is Role.BROKER:
        groups = broker.HANDLERS
    elif role is Role.CONTROLLER:
        groups = controller.HANDLERS
    elif role is Role.CLIENT:
        groups = (ServerRequests,)
    return {code for group in groups for code in handled_codes(group)}


def _who(role: Role) -> str:
    return ", ".join(name for known, name in _ROLES.items() if known in role) or "nobody"


def _support(code: RequestCode, answered: dict[Role, set[RequestCode]]) -> str:
    roles = [role for role in _ROLES if role in REQUESTS[code].answered_by]
    if not roles:
        return "RocketMQ keeps the number and answers nothing"
    if not any(code in answered[role] for role in roles):
        sent = "sent by the NameServer; " if code in _SENT_BY_NAMESRV else ""
        return f"{sent}refused: {REFUSED[code]}"
    return f"**partly**: {PARTLY[code]}" if code in PARTLY else "**supported**"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


if __name__ == "__main__":
    main(sys.argv[1:])
