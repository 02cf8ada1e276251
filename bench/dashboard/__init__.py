"""The dashboard of deploy/grafana with real data: a service with a few incidents, Prometheus, and a picture of every panel."""
