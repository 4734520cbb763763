"""Frames over sockets: server, client, connections and the dispatch of requests.

Imports protocol and the layers below it; knows nothing of topics or brokers. A received buffer
goes from `connection` through `protocol.framing` to `dispatch`, which calls a handler and gives the
bytes of the reply back to the connection.
"""
