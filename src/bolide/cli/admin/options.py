"""Options that several admin commands have, and what is made of them."""

from typing import Annotated, Literal

import typer

Switch = Literal["true", "false"]

NameServer = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrvAddr", help="Name servers, host:port;host:port; else from NAMESRV_ADDR."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
Topic = Annotated[str, typer.Option("-t", "--topic", help="Name of the topic.")]
Group = Annotated[str, typer.Option("-g", "--groupName", help="Name of the consumer group.")]
BrokerAddress = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", help="Address of one broker, host:port.")
]
ClusterName = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="All brokers of this cluster.")
]
OfCluster = Annotated[
    str | None, typer.Option("-c", "--cluster", help="Only the brokers of this cluster.")
]


def is_true(switch: Switch | None) -> bool:
    return switch == "true"


def require_one(broker: str | None, cluster: str | None) -> None:
    """Raises a usage error unless exactly one of -b and -c is given."""
    if (broker is None) == (cluster is None):
        raise typer.BadParameter("give either -b, one broker, or -c, a cluster")
