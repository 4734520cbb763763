"""Static topics: logical queues that keep their number while their place on brokers changes."""
