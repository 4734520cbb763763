"""What a broker counts for metrics, and how its families are made of that and of its tables.

`Traffic` is counted into on the event loop. `BrokerFamilies` reads everything on a thread; it is
what the broker gives to `metrics.exporter`.
"""
