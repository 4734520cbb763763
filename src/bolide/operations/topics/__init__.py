"""Topics: the list, one topic, its creation, change and deletion."""
