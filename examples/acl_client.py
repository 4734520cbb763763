"""Sign every request with an access key, for clusters with access control.

Create the user first, see docs/how-to/access-control.md, or the account in plain_acl.yml.

python examples/acl_client.py [name server]
"""

import asyncio
import sys

from bolide import LitePullConsumer, Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
ACCESS_KEY, SECRET_KEY = "RocketMQ", "12345678"


async def main() -> None:
    async with Producer(
        "acl-producer", name_server=NAME_SERVER, access_key=ACCESS_KEY, secret_key=SECRET_KEY
    ) as producer:
        result = await producer.send(Message("AclTopic", b"signed"))
        print(f"sent to {result.queue}")

    async with LitePullConsumer(
        "acl-consumer",
        name_server=NAME_SERVER,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        consume_from="first",
    ) as consumer:
        await consumer.subscribe("AclTopic")
        while not (messages := await consumer.poll()):
            pass
        print(f"polled {messages[0].body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
