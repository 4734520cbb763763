"""Options of `bolide bench`, under the names that RocketMQ's benchmark programs give them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

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
    int, typer.Option("-w", "--threadCount", min=1, help="Senders that each await their answer.")
]
Listeners = Annotated[
    int, typer.Option("-w", "--threadCount", min=1, help="Messages handled at a time.")
]
Size = Annotated[int, typer.Option("-s", "--messageSize", min=1, help="Bytes of a body.")]
StampedSize = Annotated[
    int, typer.Option("-s", "--messageSize", min=16, help="Bytes of a body; 16 are a time stamp.")
]
Keys = Annotated[Switch, typer.Option("-k", "--keyEnable", help="Give each message a key.")]
PropertySize = Annotated[
    int, typer.Option("-p", "--propertySize", min=0, help="Characters of properties.")
]
TagCount = Annotated[int, typer.Option("-l", "--tagCount", min=0, help="Number of tags.")]
Trace = Annotated[Switch, typer.Option("-m", "--msgTraceEnable", help="Trace the messages.")]
Acl = Annotated[Switch, typer.Option("-a", "--aclEnable", help="Sign the requests.")]
AccessKey = Annotated[str, typer.Option("-ak", "--accessKey", help="Access key, with -a true.")]
SecretKey = Annotated[str, typer.Option("-sk", "--secretKey", help="Secret key, with -a true.")]
Quantity = Annotated[
    int,
    typer.Option("-q", "--messageQuantity", "--count", min=0, help="Messages; 0: without end."),
]
Count = Annotated[int, typer.Option("--count", min=0, help="Messages; 0: without end.")]
Duration = Annotated[float, typer.Option("--duration", min=0.0, help="Seconds; 0: without end.")]
Delay = Annotated[Switch, typer.Option("-d", "--delayEnable", help="Send delayed messages.")]
DelayLevel = Annotated[int, typer.Option("-e", "--delayLevel", min=1, help="Level of the delay.")]
Async = Annotated[
    Switch,
    typer.Option(
        "-y", "--asyncEnable", help="Send without waiting for answers, 1,000 under way; not -w."
    ),
]
Compress = Annotated[Switch, typer.Option("-c", "--compressEnable", help="Compress bodies.")]
CompressType = Annotated[Codec, typer.Option("-ct", "--compressType", help="How to compress.")]
CompressLevel = Annotated[int, typer.Option("-cl", "--compressLevel", help="How hard.")]
CompressOver = Annotated[
    int, typer.Option("-ch", "--compressOverHowMuch", min=0, help="Bodies from so many bytes on.")
]
Interval = Annotated[
    int, typer.Option("-ri", "--reportInterval", min=1, help="Milliseconds between two lines.")
]
BatchSize = Annotated[int, typer.Option("-b", "--batchSize", min=1, help="Messages in a request.")]
Group = Annotated[str, typer.Option("-g", "--group", help="Consumer group.")]
Suffix = Annotated[
    Switch, typer.Option("-p", "--groupPrefixEnable", help="Add a number to the group's name.")
]
Filter = Annotated[
    FilterType | None, typer.Option("-f", "--filterType", help="What is in the file of -e.")
]
Expression = Annotated[
    Path | None, typer.Option("-e", "--expression", help="File with a filter expression.")
]
FailRate = Annotated[
    float,
    typer.Option("-r", "--failRate", min=0.0, max=1.0, help="Part that is asked for again."),
]
Rebalance = Annotated[
    Switch,
    typer.Option("-c", "--clientRebalanceEnable", help="false has brokers share the queues out."),
]
Rate = Annotated[float, typer.Option("--rate", min=0.001, help="Messages a second.")]
WarmUp = Annotated[
    float, typer.Option("--warm-up", min=0.0, help="Seconds at that rate that do not count.")
]
SendRollback = Annotated[
    float,
    typer.Option("-sr", "--sendRollbackRate", min=0, max=1, help="Share that is rolled back."),
]
SendUnknown = Annotated[
    float,
    typer.Option("-su", "--sendUnknownRate", min=0, max=1, help="Share that is left unknown."),
]
CheckRollback = Annotated[
    float,
    typer.Option("-cr", "--checkRollbackRate", min=0, max=1, help="Of checks: rolled back."),
]
CheckUnknown = Annotated[
    float,
    typer.Option("-cu", "--checkUnknownRate", min=0, max=1, help="Of checks: still unknown."),
]
Ahead = Annotated[
    float, typer.Option("--ahead", min=0.0, help="Seconds until the first message is due.")
]
Over = Annotated[
    float, typer.Option("--over", min=0.0, help="Seconds over which messages are due.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the summary as JSON, the lines on standard error.")
]
