"""The `rocketmq` sink: checks columns, encodes rows by column with Arrow, routes and sends them.

Spark calls the writers of `writer`; `options` and `columns` are also used to check pipelines before
they start. The other modules are internal: `rows`, `encoding`, `routing` and `row_batches` turn
record batches into send requests, `sender` and `topic_checks` talk to the cluster.
"""
