"""The comparison with Apache RocketMQ: `make bench-compare`.

| module | content |
| --- | --- |
| `cells` | the list of what is measured: one cell per kind of load |
| `loads` | load by the generator written in C, and the warm-up |
| `programs` | load by RocketMQ's benchmark programs and by `bolide bench` |
| `footprint` | starts, stops, memory and idle connections |
| `rounds` | one round, and the resources that it used |
| `stages` | the brokers that run while the cells of a stage are measured |
| `results` | the file of all rounds, from which a run can be resumed |
| `code` | which code was measured |
| `figures` | medians, ratios and bounds |
| `goals` | the project's goals, and whether a run met them |
| `report`, `plot` | the page |
| `baseline` | another checkout in place of RocketMQ: `--baseline` |
| `access` | both brokers with access control: `make bench-access` |
| `replicas` | brokers with and without a slave: `make bench-replicas` |
| `context` | NATS JetStream and RabbitMQ, measured with their own tools |
"""
