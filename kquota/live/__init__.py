"""Live metrics beside the quotas that govern them: sources that are read again and again, and what is made of them.

| module | from | to |
|---|---|---|
| `sources.py` | pages of exporters, Prometheus | samples of one look, and the names that rules and dashboards need |
| `followed.py` | request logs that grow | readings of one look, from the requests themselves |
| `watching.py` | one look after the other | the use of every counter |
| `exporter.py` | uses, drift, leases and findings | metrics for Prometheus |
"""
