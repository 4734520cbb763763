"""The push consumer: brings messages to handlers."""
