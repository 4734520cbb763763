"""Messages: search, browsing, live tail, bodies, consumption state, downloads, and resending.

`scanning` reads queues in blocks, in both directions, and merges them by store time; a cursor of
one offset per queue continues where a request ended, so that nothing is loaded whole. `filters`
says which messages are wanted and which part of that the broker can decide. The operations are in
`search`, `tail`, `detail`, `consumption`, `resending` and `downloads`.
"""
