"""The broker: stores messages from producers and serves them to consumers.

`server.Broker` starts and stops one; `assembly` builds what it consists of.
"""
