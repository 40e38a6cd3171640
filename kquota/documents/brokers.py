"""The configs of brokers, and the report of altering them (schemas/brokers.schema.json, broker_alter.schema.json)."""

from __future__ import annotations

from typing import Any

from kquota.core.change.broker import Broker, BrokerAlterResult, BrokerSnapshot, beside
from kquota.core.change.plan import Cluster
from kquota.core.quotas.entity import DEFAULT
from kquota.documents.encoding import Document


def brokers_document(snapshot: BrokerSnapshot) -> Document:
    """Per broker its configs: what is in effect, where it is set, and what is set below that."""
    return {
        "kind": "kquota.brokers",
        "version": 1,
        "brokers": [
            {
                "broker": _broker(broker),
                "configs": [
                    {
                        "name": config.name,
                        "value": config.value,
                        "source": config.source.value,
                        "alterable": config.is_alterable,
                        "shadows": [
                            {"name": each.name, "value": each.value, "source": each.source.value}
                            for each in config.hidden
                        ],
                        "beside": None
                        if (other := beside(config, configs)) is None
                        else {
                            "name": other.name,
                            "value": other.value,
                            "source": other.source.value,
                            "unless_inter_broker": config.is_protected is None,
                        },
                    }
                    for config in configs
                ],
            }
            for broker, configs in snapshot.items()
        ],
    }


def broker_alter_document(result: BrokerAlterResult, cluster: Cluster, *, dry_run: bool) -> Document:
    """The limits that are set for that broker itself, before and after, and the cluster by its address."""
    return {
        "kind": "kquota.broker_alter",
        "version": 1,
        "dry_run": dry_run,
        "cluster": {"address": cluster.address, "id": cluster.id},
        "broker": _broker(result.broker),
        "changed": result.changed,
        "before": dict(result.before),
        "after": dict(result.after),
    }


def _broker(broker: Broker) -> Any:
    return {"default": True} if broker is DEFAULT else broker
