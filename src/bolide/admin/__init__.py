"""Administration of a cluster: `client.AdminClient`, a typed asyncio API over admin requests."""
