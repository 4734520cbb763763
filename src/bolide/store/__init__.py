"""The log engine: commit log, consume queues, key index, recovery, retention.

The store is synchronous and knows no event loop. Blocking work runs on the store's own threads or
on a thread of the caller's choice. The package may import `kernel`, `protocol`, `model` and the
modules at the root, nothing above.
"""
