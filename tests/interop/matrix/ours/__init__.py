"""Our client as a player of the matrix; it does and tells what the programs in Java do and tell.

Run as `python -m tests.interop.matrix.ours NAMESRV BROKER PREFIX CELL...`.
"""
