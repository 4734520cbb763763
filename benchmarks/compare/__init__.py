"""The comparison with Apache RocketMQ: `make bench-compare`.

| module | what |
| --- | --- |
| `cells` | what is measured: one line for each kind of load |
| `loads` | load by the generator written in C |
| `java_programs`, `our_programs` | load by RocketMQ's benchmark programs and by `bolide bench` |
| `footprint` | starts, stops, memory and idle connections |
| `warming` | load before a cell, which is not measured |
| `rounds` | what one round used, measured around it |
| `stages` | the brokers that run while some of the cells are measured |
| `results` | the file that all rounds go to, so that a run can go on |
| `code` | which code was measured |
| `figures` | medians, ratios and bounds |
| `bars` | what the project set out to reach, and whether it did |
| `report`, `plot` | the page |
| `context` | NATS JetStream and RabbitMQ by their own tools |
"""
