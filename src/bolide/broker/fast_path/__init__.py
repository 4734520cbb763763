"""The fast path: plain sends, transactions and pulls served from received bytes by prepared plans.

A request comes here before it is decoded. If gate and handlers have admitted one like it before,
of the same sender, kind and target, a plan was prepared (`plans`), and compiled code serves it:
`_sends` appends to the log, `_pulls` gathers from it. Any other request falls through to gate and
handlers and is counted by reason (`fall_through`). The handlers are the reference: both ways write
the same bytes. Without compiled modules there is no fast path.
"""
