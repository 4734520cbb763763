"""ACL 2.0, as RocketMQ 5.3 and newer have it: users, and policies that allow or deny actions.

`PolicyAccess` (module `access`) is the `Access` of a server: it verifies the signature of a
request against its user, looks up what the request needs (`requirements`) and lets the user's
policies decide (`decisions`). Users and policies (`model`) live in two JSON files (`files`) and are
changed through `Metadata` (`metadata`).
"""
