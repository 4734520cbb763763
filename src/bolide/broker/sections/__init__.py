"""Settings of a broker by subject, as `BrokerConfig` puts them together."""
