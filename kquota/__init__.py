"""kquota: Kafka client quotas - describe, alter, resolve, simulate and audit them."""

__version__ = "0.1.0"
