"""Live metrics beside the quotas that govern them: sources that are read again and again, and what is made of them.

sources.py   pages of exporters, and Prometheus → looks
watching.py  one look after the other → the use of every counter
exporter.py  uses, drift, leases and findings → metrics for Prometheus
"""
