"""The web console: pages and an HTTP API over the operations of a cluster, in their own process.

`settings` and `server` start it. `service` is what pages and API work with; `access` has accounts,
sessions and log-ins; `api` is the HTTP API, made from the declarations in `bolide.operations`;
`web` is what every request passes; `ui` is what pages are made of, and `pages` are the pages.
"""
