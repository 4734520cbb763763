"""`mirror`: copies topics to a topic of the same or another cluster, optionally through SQL."""

from dataclasses import dataclass

from bolide.errors import ConfigError
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option, parse_key_values
from bolide.spark.pipelines.definition import FormatSink, Pipeline, Source, sql_step
from bolide.spark.pipelines.times import Trigger
from bolide.spark.sink.options import SinkOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """Send the messages of topics to a topic, with their keys, tags and properties.

    Each message comes at least once; exactly once with --dedup, to a topic with a dedup.window.
    """

    topic: str = cli_option("Topics to read, with commas between them.")
    to: str | None = cli_option(
        "Topic to send to; the same names as read from if it is another cluster.",
        default=None,
        metavar="TOPIC",
    )
    to_name_server: str | None = cli_option(
        "NameServers of the other cluster, host:port;host:port.", default=None
    )
    to_option: tuple[str, ...] = cli_option(
        "An option of the sink, KEY=VALUE; may be given often.", default=(), metavar="KEY=VALUE"
    )
    sql: str | None = cli_option(
        "Change the messages: a query from `input`, such as select * from input where tags='paid'.",
        default=None,
    )
    tags: str | None = cli_option("Only these tags, such as 'created || paid'.", default=None)
    dedup: bool = cli_option("Key messages by their place in the source.", default=False)
    keep_order: bool = cli_option("Keep the order of each queue.", default=True)


def plan(options: MirrorOptions, run: RunSettings) -> Pipeline:
    """Raises ConfigError if the target is one of the source topics."""
    source = run.source(topic=options.topic, tags=options.tags)
    SourceOptions.of(source.options)
    sink = _sink(options, run)
    _refuse_circle(options, source, sink)
    name = run.named(f"mirror-{_short(options.topic)}")
    return Pipeline(
        kind="mirror",
        name=name,
        source=source,
        steps=(sql_step(options.sql, "--sql"),) if options.sql else (),
        sink=sink,
        checkpoint=run.checkpoint_of(name),
        trigger=run.trigger_of(Trigger(1.0)),
        commit_group=run.commit_group,
    )


def _sink(options: MirrorOptions, run: RunSettings) -> FormatSink:
    given = parse_key_values(options.to_option, option="--to-option")
    chosen = {"dedup": str(options.dedup).lower(), "keepOrder": str(options.keep_order).lower()}
    chosen |= {"nameServer": options.to_name_server} if options.to_name_server else run.connection
    if options.to:
        chosen["topic"] = options.to
    SinkOptions.of(chosen | given)
    return FormatSink(format="rocketmq", options=chosen | given)


def _refuse_circle(options: MirrorOptions, source: Source, sink: FormatSink) -> None:
    here = SourceOptions.of(source.options).connection().name_server
    there = SinkOptions.of(sink.options).connection().name_server
    if here == there and (options.to is None or options.to in _topics(options.topic)):
        raise ConfigError(
            "mirror would send to the topic that it reads: use --to TOPIC, or --to-name-server"
        )


def _topics(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _short(topics: str) -> str:
    first, *others = _topics(topics)
    return first if not others else f"{first}-and-{len(others)}"


BUILT_IN = BuiltIn("mirror", MirrorOptions, plan, example="--topic orders --to orders-copy")
