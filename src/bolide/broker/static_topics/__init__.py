"""Static topics: requests about logical queues are translated to the physical ones."""
