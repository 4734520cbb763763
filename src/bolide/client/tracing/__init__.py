"""Message trace: what producers and consumers tell of each message, on a topic of its own."""
