"""Deprecated import paths of `bolide.client.consumer`, kept for programs that use them."""
