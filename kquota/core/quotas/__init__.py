"""Quotas as they are set: entities, keys, values, snapshots, and which versions of Kafka know them."""
