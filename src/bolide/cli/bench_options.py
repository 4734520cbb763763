"""Options of `bolide bench`, with the names of RocketMQ's benchmark programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bolide.cli.admin.credentials import ACCESS_KEY, SECRET_KEY

Switch = Literal["true", "false"]
Codec = Literal["ZLIB", "LZ4", "ZSTD"]
FilterType = Literal["TAG", "SQL92"]

NameServer = Annotated[
    str,
    typer.Option(
        "-n", "--namesrvAddr", "--namesrv", envvar="NAMESRV_ADDR",
        help="NameServers, host:port;host:port.",
    ),
]  # fmt: skip
Topic = Annotated[str, typer.Option("-t", "--topic", help="Topic name.")]
Senders = Annotated[
    int,
    typer.Option("-w", "--threadCount", min=1, help="Senders, each with one request in flight."),
]
Listeners = Annotated[
    int, typer.Option("-w", "--threadCount", min=1, help="Messages handled concurrently.")
]
Size = Annotated[int, typer.Option("-s", "--messageSize", min=1, help="Body size in bytes.")]
StampedSize = Annotated[
    int,
    typer.Option(
        "-s", "--messageSize", min=16, help="Body size in bytes, including a 16-byte time stamp."
    ),
]
Keys = Annotated[Switch, typer.Option("-k", "--keyEnable", help="Give each message a key.")]
PropertySize = Annotated[
    int,
    typer.Option(
        "-p", "--propertySize", min=0, help="Total length of the properties in characters."
    ),
]
TagCount = Annotated[int, typer.Option("-l", "--tagCount", min=0, help="Number of tags.")]
Trace = Annotated[Switch, typer.Option("-m", "--msgTraceEnable", help="Trace the messages.")]
Acl = Annotated[
    Switch,
    typer.Option("-a", "--aclEnable", help=f"Sign the requests; {ACCESS_KEY} does so too."),
]
AccessKey = Annotated[
    str, typer.Option("-ak", "--accessKey", envvar=ACCESS_KEY, help="Access key, with -a true.")
]
SecretKey = Annotated[
    str, typer.Option("-sk", "--secretKey", envvar=SECRET_KEY, help="Secret key, with -a true.")
]
Quantity = Annotated[
    int,
    typer.Option("-q", "--messageQuantity", "--count", min=0, help="Messages; 0: unlimited."),
]
Count = Annotated[int, typer.Option("--count", min=0, help="Messages; 0: unlimited.")]
Duration = Annotated[float, typer.Option("--duration", min=0.0, help="Seconds; 0: unlimited.")]
Delay = Annotated[Switch, typer.Option("-d", "--delayEnable", help="Send delayed messages.")]
DelayLevel = Annotated[int, typer.Option("-e", "--delayLevel", min=1, help="Delay level.")]
Async = Annotated[
    Switch,
    typer.Option("-y", "--asyncEnable", help="Send asynchronously, 1,000 in flight; ignores -w."),
]
Compress = Annotated[Switch, typer.Option("-c", "--compressEnable", help="Compress bodies.")]
CompressType = Annotated[
    Codec, typer.Option("-ct", "--compressType", help="Compression algorithm.")
]
CompressLevel = Annotated[int, typer.Option("-cl", "--compressLevel", help="Compression level.")]
CompressOver = Annotated[
    int,
    typer.Option(
        "-ch", "--compressOverHowMuch", min=0, help="Minimum size of bodies to compress, in bytes."
    ),
]
Interval = Annotated[
    int, typer.Option("-ri", "--reportInterval", min=1, help="Milliseconds between progress lines.")
]
BatchSize = Annotated[int, typer.Option("-b", "--batchSize", min=1, help="Messages per request.")]
Group = Annotated[str, typer.Option("-g", "--group", help="Consumer group.")]
Suffix = Annotated[
    Switch, typer.Option("-p", "--groupPrefixEnable", help="Append a number to the group name.")
]
Filter = Annotated[
    FilterType | None,
    typer.Option("-f", "--filterType", help="Type of the expression in the file of -e."),
]
Expression = Annotated[
    Path | None, typer.Option("-e", "--expression", help="File with a filter expression.")
]
FailRate = Annotated[
    float,
    typer.Option("-r", "--failRate", min=0.0, max=1.0, help="Share of messages that is retried."),
]
Rebalance = Annotated[
    Switch,
    typer.Option("-c", "--clientRebalanceEnable", help="false: brokers assign the queues."),
]
Rate = Annotated[float, typer.Option("--rate", min=0.001, help="Messages per second.")]
WarmUp = Annotated[
    float, typer.Option("--warm-up", min=0.0, help="Seconds of warm-up, which are not measured.")
]
SendRollback = Annotated[
    float,
    typer.Option(
        "-sr", "--sendRollbackRate", min=0, max=1, help="Share of transactions rolled back."
    ),
]
SendUnknown = Annotated[
    float,
    typer.Option(
        "-su", "--sendUnknownRate", min=0, max=1, help="Share of transactions left unknown."
    ),
]
CheckRollback = Annotated[
    float,
    typer.Option(
        "-cr", "--checkRollbackRate", min=0, max=1, help="Share of checks answered rollback."
    ),
]
CheckUnknown = Annotated[
    float,
    typer.Option(
        "-cu", "--checkUnknownRate", min=0, max=1, help="Share of checks answered unknown."
    ),
]
Ahead = Annotated[
    float, typer.Option("--ahead", min=0.0, help="Seconds until the first message is due.")
]
Over = Annotated[
    float, typer.Option("--over", min=0.0, help="Seconds over which messages are due.")
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the summary as JSON; progress lines go to standard error."),
]
