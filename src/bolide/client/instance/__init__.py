"""Client instances, shared by producers and consumers: connections, routes, heartbeats, lookups."""
