"""How user functions are called: workers, concurrency, order, retries."""
