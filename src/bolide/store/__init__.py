"""The log engine: commit log, consume queues, key index, recovery, retention.

Synchronous: it knows no event loop. What blocks runs on threads of its own or where the caller
says. It may import `kernel`, `protocol`, `model` and the modules at the root, nothing above.
"""
