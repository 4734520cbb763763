"""The NameServer: which brokers there are, and where the queues of a topic are.

`routes` is the table, `kv` the small configuration store, `handlers` answer requests from them,
`app` puts them behind a port. Imports remoting and the layers below it, never broker or client.
"""
