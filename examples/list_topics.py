"""List the clusters and topics of a NameServer.

python examples/list_topics.py localhost:9876
"""

import asyncio
import sys

from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import ClusterInfo, TopicList
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient


async def list_topics(address: str) -> None:
    async with RemotingClient() as client:
        reply = await client.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        info = fastjson.decode(reply.body, ClusterInfo)
        reply = await client.call(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = fastjson.decode(reply.body, TopicList).topic_list
    print(f"Clusters: {len(info.cluster_addr_table)}")
    for cluster, names in sorted(info.cluster_addr_table.items()):
        for name in sorted(names):
            addresses = info.broker_addr_table[name].broker_addrs
            print(f"  {cluster} {name} {', '.join(addresses.values())}")
    print(f"Topics: {len(topics)}")
    for topic in sorted(topics):
        print(f"  {topic}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/list_topics.py HOST:PORT")
    try:
        asyncio.run(list_topics(sys.argv[1]))
    except (BolideError, ValueError) as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
