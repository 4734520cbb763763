"""Send three requests and print the replies of rpc_reply.py.

python examples/rpc_request.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer
from bolide.client.errors import RequestTimedOut

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("rpc-requester", name_server=NAME_SERVER) as producer:
        for number in range(3):
            question = Message("RequestTopic", f"{number} + {number}".encode())
            try:
                reply = await producer.request(question, timeout=20.0)
            except RequestTimedOut as late:
                print(late)
            else:
                print(f"{question.body.decode()} = {reply.body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
