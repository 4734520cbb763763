"""What people and programs do with a cluster: one declaration per operation.

An operation is an async function over a `Cluster`. The decorators of `declaration` say which role
may run it, whether it changes something, what it shows before it destroys something, and where it
is in the HTTP API. The console's pages, its API and `bolide mcp` run operations only through
`door.Door.run`, which checks the role, asks for the confirmation and writes the audit log.

A package is a domain: topics, consumers, messages, dead_letters, held, access, servers; `history`
samples the cluster. `catalog` lists all operations. The views they return are plain
dataclasses; None in a view means that the figure is unknown, never that it is 0.
"""
