"""ACL 1.0: accounts and white lists of `plain_acl.yml` and `acl/*.yml`, as in RocketMQ 4.9.

`yaml_nodes` reads YAML into nodes that know their line, `documents` reads a file into accounts,
`rules` merges all files, `needs` says what a request needs, `access` decides, `files` finds the
files and notices changes, `changes` edits them.
"""
