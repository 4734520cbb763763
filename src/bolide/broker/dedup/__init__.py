"""De-duplication: a keyed message sent again is answered with the position of the first one.

A topic opts in with its attribute `dedup.window`. `duplicates` filters sends, `windows` holds the
keys of all topics, `window` is the window of one queue, and `recovery` rebuilds windows from the
log.
"""
