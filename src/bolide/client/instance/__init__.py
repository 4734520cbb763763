"""What the clients of a process share: connections, routes, heartbeats, lookups."""
