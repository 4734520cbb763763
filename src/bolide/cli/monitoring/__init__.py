"""What Grafana and Prometheus need to watch a cluster: a dashboard and alert rules.

`dashboard.yml` is short, `boards` makes Grafana's document of it; `alerts.yml` is Prometheus' own.
"""
