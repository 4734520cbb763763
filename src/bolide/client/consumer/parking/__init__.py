"""Parking of failing keys: the park topic of a group and the state derived from its records.

`docs/how-to/ordered-messages.md` describes the feature, `records` the format of the topic.
"""
