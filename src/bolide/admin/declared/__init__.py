"""A cluster as a document: topics, groups, users, policies and accounts, written down and applied.

`document` reads and writes the YAML, `fields` has the rules of each field, `cluster` reads what the
brokers have, `planning` compares the two without I/O, and `execution` carries a plan out.
"""
