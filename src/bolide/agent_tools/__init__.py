"""`bolide mcp`: the operations of a cluster as tools of the Model Context Protocol, for agents.

Every operation of `bolide.operations.catalog` that the role allows is a tool; those that change
something only if the server was told to offer them. `server` answers the two requests that
matter, list and call; `tools` makes a tool of an operation; `confirmations` has the user asked
before something is destroyed or moved; `results` writes views briefly and cuts long ones; `stdio`
and `http` are the transports. Needs the extra `mcp`.
"""
