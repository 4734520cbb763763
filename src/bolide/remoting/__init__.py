"""Frames over sockets: server, client, connections and the dispatch of requests.

The package imports protocol and the layers below it and knows nothing of topics or brokers. A
received buffer goes from `connection` through `protocol.framing` to `dispatch`, which calls a
handler and returns the encoded reply to the connection.
"""
