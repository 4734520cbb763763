"""Failing keys set aside: the park topic of a group, and what follows from its records.

`docs/how-to/ordered-messages.md` tells what parking does, `records` what the topic holds.
"""
