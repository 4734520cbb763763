"""The NameServer: registered brokers, and the routes to the queues of each topic.

`routes` is the route table, `kv` the KV configuration, `handlers` the request handlers, and
`server` starts and stops the process. Imports remoting and lower layers, never broker or client.
"""
