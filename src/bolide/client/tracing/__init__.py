"""Message trace on a topic of its own, and OpenTelemetry spans."""
