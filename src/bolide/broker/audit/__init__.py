"""The audit log of a broker: requests that administer it, as messages of a system topic."""
