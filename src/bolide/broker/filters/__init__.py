"""Message filters: tags, SQL92 expressions, and Python functions registered by administrators.

`filters` turns subscriptions into filters for reads; `subscriptions` stores the SQL filters of
groups; `sql` compiles SQL92; `functions` manages filter functions, which run in the processes of
`worker_pool`.
"""
