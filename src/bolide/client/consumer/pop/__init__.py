"""POP consumption: the pop consumer, and the POP mode of push consumers."""
