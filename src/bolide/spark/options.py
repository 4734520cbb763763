"""Options of the `rocketmq` source, each declared once with type, default, bounds and description.

Spark passes option values as strings under lower-case names. An unknown option is refused with the
nearest known name, because a misspelt option would silently read other data than intended.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from bolide import config
from bolide.arrow.cluster import READER_GROUP, Connection
from bolide.arrow.offsets import At, Position, parse_position
from bolide.arrow.range_fetcher import ReadOptions
from bolide.client.instance.settings import ClientSettings
from bolide.config import option
from bolide.errors import ConfigError
from bolide.remoting.tls import ClientTls, TlsWords

O = TypeVar("O")  # noqa: E741  a class of options

_TLS_WORDS = TlsWords(
    trust="tlsTrustCertPath=path/to/ca.pem",
    no_verify="tlsVerify=false",
    no_host_check="tlsCheckHost=false",
    server_name="tlsServerName",
    certificate="tlsCertPath and tlsKeyPath",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConnectionOptions:
    """Options that reach the cluster, shared by the source and the sink."""

    name_server: str | None = option(
        None, "NameServers as `host:port;host:port`; defaults to `NAMESRV_ADDR`."
    )
    namespace: str = option("", "Prefix of topic and group names on the wire.")
    access_key: str | None = option(
        None, "Access key; requests are signed if it is set together with `secretKey`.", secret=True
    )
    secret_key: str | None = option(None, "Secret key that signs requests.", secret=True)
    security_token: str | None = option(None, "Security token of temporary keys.", secret=True)
    tls_enable: bool = option(False, "Connect with TLS.")
    tls_trust_cert_path: Path | None = option(
        None,
        "Certificates of the authorities that sign those of servers, PEM; by default those that"
        " the system trusts.",
    )
    tls_cert_path: Path | None = option(None, "Client certificate, for servers that request one.")
    tls_key_path: Path | None = option(None, "Private key of the client certificate.")
    tls_key_password: str | None = option(None, "Password of the private key.", secret=True)
    tls_verify: bool = option(
        True, "Verify the certificates of servers; false accepts any server, which is unsafe."
    )
    tls_check_host: bool = option(
        True, "Whether the certificate of a server must have the host that is connected to."
    )
    tls_server_name: str | None = option(
        None, "Name that the certificates of servers must have, in place of their host."
    )
    call_timeout: float = option(
        3.0, "Milliseconds for one request.", key="callTimeoutMs", scale=1000, bounds=(1, None)
    )
    patience: float = option(
        60.0,
        "Milliseconds that a broker may be unavailable before a task or a query fails.",
        key="patienceMs",
        scale=1000,
        bounds=(0, None),
    )

    def __repr__(self) -> str:
        texts = ", ".join(f"{key}={text!r}" for key, text in config.to_texts(self).items())
        return f"{type(self).__name__}({texts})"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse Spark's options; `NAMESRV_ADDR` is read here, as workers may have another.

        Raises:
            ConfigError: an option is unknown, invalid or conflicts with another; names the option.
        """
        found = load(cls, options)
        servers = ClientSettings.of(name_server=found.name_server).name_servers
        found = replace(found, name_server=";".join(servers))
        found.check()
        return found

    def check(self) -> None:
        """Raises ConfigError if options conflict."""
        if not self.tls_enable and self._tls_given():
            raise ConfigError(f"{self._tls_given()} has no effect without tlsEnable=true")
        self._tls()
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey and secretKey must be given together")
        if not self.name_server:
            raise ConfigError("nameServer is missing: set nameServer=host:port")

    def connection(self) -> Connection:
        """How a task, or the driver, connects to the cluster."""
        return Connection(
            name_server=self.name_server or "",
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            namespace=self.namespace,
            tls=self._tls(),
            call_timeout=self.call_timeout,
        )

    def _tls(self) -> ClientTls | None:
        if not self.tls_enable:
            return None
        return ClientTls(
            certificate=self.tls_cert_path,
            key=self.tls_key_path,
            key_password=self.tls_key_password,
            trust=self.tls_trust_cert_path,
            verify=self.tls_verify,
            check_host=self.tls_check_host,
            server_name=self.tls_server_name,
            words=_TLS_WORDS,
        )

    def _tls_given(self) -> str | None:
        given = {
            "tlsTrustCertPath": self.tls_trust_cert_path,
            "tlsCertPath": self.tls_cert_path,
            "tlsKeyPath": self.tls_key_path,
            "tlsKeyPassword": self.tls_key_password,
            "tlsVerify": not self.tls_verify,
            "tlsCheckHost": not self.tls_check_host,
            "tlsServerName": self.tls_server_name,
        }
        return next((name for name, value in given.items() if value), None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SourceOptions(ConnectionOptions):
    """Options of the source: what to read, and how."""

    topic: tuple[str, ...] = option((), "One topic, or several separated by commas.", separator=",")
    topic_pattern: str | None = option(
        None,
        "Regular expression that whole topic names match, including topics created later.",
    )
    starting_offsets: str | None = option(
        None,
        "Start position: `earliest`, `latest`, a time such as `2026-01-31T12:00:00Z` or `-10m`,"
        " `group:NAME`, or JSON by topic, broker and queue, where -2 is earliest and -1 latest;"
        " defaults to `earliest` for a batch and `latest` for a stream."
        " A stream with a checkpoint continues from there instead.",
    )
    ending_offsets: str | None = option(
        None,
        "End position of a batch (exclusive), in the same forms; defaults to `latest`.",
    )
    starting_timestamp: int | None = option(
        None,
        "Start at the first message stored at that time, in milliseconds since 1970;"
        " replaces `startingOffsets`.",
        bounds=(0, None),
    )
    ending_timestamp: int | None = option(
        None,
        "A batch ends before the first message stored at that time, in milliseconds since 1970;"
        " replaces `endingOffsets`.",
        bounds=(0, None),
    )
    tags: str | None = option(
        None,
        "Only messages with one of these tags, such as `created || paid`; filtered by the broker.",
        aliases=("subExpression",),
    )
    sql: str | None = option(
        None, "Only messages whose properties match this SQL92 expression; filtered by the broker."
    )
    include_properties: bool = option(True, "Include the column `properties`.")
    value_schema: str | None = option(
        None,
        "Columns such as `id bigint, name string`: adds a column `value` with these, decoded from"
        " JSON bodies; null if a body is not JSON.",
    )
    max_offsets_per_trigger: int | None = option(
        None,
        "Maximum number of offsets in a micro-batch, distributed by backlog; at least one of every"
        " queue with a backlog.",
        bounds=(1, None),
    )
    max_bytes_per_trigger: int | None = option(
        None,
        "Approximate maximum bytes in a micro-batch, estimated from the size of recent messages.",
        bounds=(1, None),
    )
    min_partitions: int | None = option(
        None, "Minimum number of tasks: the longest ranges are split.", bounds=(1, None)
    )
    max_records_per_partition: int | None = option(
        None, "Maximum number of offsets in a task: longer ranges are split.", bounds=(1, None)
    )
    fail_on_data_loss: bool = option(
        True,
        "Fail if messages were deleted before they were read; else log their number and continue.",
    )
    commit_group: str | None = option(
        None,
        "Consumer group to which a stream commits its position, so that `consumerProgress` shows"
        " its lag; the stream itself uses its checkpoint.",
    )
    consumer_group: str = option(
        READER_GROUP,
        "Consumer group of the pull requests; its position is neither used nor changed.",
    )
    pull_batch_size: int = option(
        1024,
        "Messages per pull request; brokers may return fewer (Apache RocketMQ: 32).",
        bounds=(1, None),
    )
    pull_timeout: float = option(
        10.0,
        "Milliseconds for one pull, which is then retried within `patienceMs`.",
        key="pullTimeoutMs",
        scale=1000,
        bounds=(1, None),
    )

    def check(self) -> None:
        """Raises ConfigError if options conflict."""
        ConnectionOptions.check(self)
        self._one_of("topic", self.topic, "topicPattern", self.topic_pattern, needed=True)
        self._check_pattern()
        self._one_of("tags", self.tags, "sql", self.sql)
        for end in ("starting", "ending"):
            offsets = getattr(self, f"{end}_offsets")
            timestamp = getattr(self, f"{end}_timestamp")
            self._one_of(f"{end}Offsets", offsets, f"{end}Timestamp", timestamp)

    def _check_pattern(self) -> None:
        try:
            re.compile(self.topic_pattern or "")
        except re.error as exc:
            raise ConfigError(
                f"topicPattern={self.topic_pattern!r}: is no regular expression: {exc}"
            ) from exc

    @staticmethod
    def _one_of(
        name: str, value: object, other: str, other_value: object, *, needed: bool = False
    ) -> None:
        if value and other_value is not None:
            raise ConfigError(f"{name} and {other} cannot be given together")
        if needed and not value and other_value is None:
            raise ConfigError(f"{name} or {other} is missing: set one of them")

    def start(self, default: str) -> Position:
        """Raises ConfigError, naming the option."""
        if self.starting_timestamp is not None:
            return At(self.starting_timestamp)
        return parse_position(self.starting_offsets or default, option="startingOffsets")

    def end(self) -> Position:
        """Raises ConfigError, naming the option."""
        if self.ending_timestamp is not None:
            return At(self.ending_timestamp)
        return parse_position(self.ending_offsets or "latest", option="endingOffsets")

    def reading(self) -> ReadOptions:
        """Raises ConfigError, naming the option."""
        return ReadOptions(
            tags=self.tags or "*",
            sql=self.sql,
            include_properties=self.include_properties,
            value_schema=self.value_schema,
            fail_on_data_loss=self.fail_on_data_loss,
            pull_batch_size=self.pull_batch_size,
            pull_timeout=self.pull_timeout,
            patience=self.patience,
            group=self.consumer_group,
        )


def load(kind: type[O], options: Mapping[str, str]) -> O:
    """Build an options dataclass from strings; names are case-insensitive.

    Raises:
        ConfigError: an option is unknown or has a bad value; names the option.
    """
    declared = config.options_of(kind)
    names = {name.lower(): name for found in declared.values() for name in names_of(found)}
    texts = {}
    for given, text in options.items():
        name = names.get(given.lower())
        if name is None:
            raise ConfigError(f"unknown option {given}{_hint(given, names)}")
        texts[name] = text
    return config.load(kind, texts, strict=True)


def names_of(declared: config.Option) -> list[str]:
    return [declared.key, *declared.aliases]


def _hint(given: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(given.lower(), names, n=1)
    return (
        f"; did you mean {names[near[0]]}?" if near else f"; there are {', '.join(names.values())}"
    )
