"""`make bench-smoke`: has a message become dearer than it was?

What a message costs, in CPU time, is measured in turns with a reference that never changes, so that
of the two only their ratio is looked at: what the machine does to one it does to the other.
"""
