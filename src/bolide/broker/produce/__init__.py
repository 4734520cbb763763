"""Messages coming in: sends, batches, send-backs, request-reply, and when they are durable."""
