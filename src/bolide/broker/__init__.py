"""The broker: takes messages from producers, keeps them in a store and hands them to consumers.

`app.Broker` puts the parts together; `handlers` lists what can be asked of it. It calls name
servers and clients through `bolide.remoting` and imports neither `client` nor `namesrv`.
"""
