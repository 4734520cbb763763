"""`make bench-smoke`: the guard against regressions of the CPU time per message.

Rounds alternate with a reference implementation that never changes. Only the ratio of the two costs
is compared with the stored one, because the machine's speed affects both alike.
"""
