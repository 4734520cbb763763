"""Producers and consumers on asyncio, for our brokers and for Apache's.

`bolide.sync` is the same without `await`. It imports from `remoting` and below.
"""
