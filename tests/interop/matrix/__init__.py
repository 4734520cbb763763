"""The compatibility matrix: every client with every broker, cell by cell.

A cell is one thing that a client does, such as a batch or a retry. For each client and broker one
process, the player, plays all cells and tells what it saw; `cells` says what must have been seen.
Run as `python -m tests.interop.matrix` it prints the table.
"""
