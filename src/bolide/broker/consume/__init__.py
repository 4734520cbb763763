"""Messages going out by pull: admission, reading, long polling, expiry, broker-side assignment."""
