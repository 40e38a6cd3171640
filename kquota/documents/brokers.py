"""The configs of brokers, and the report of altering them (schemas/brokers.schema.json, broker_alter.schema.json)."""

from typing import Any

from kquota.core.change.broker import Broker, BrokerAlterResult, BrokerSnapshot, beside
from kquota.core.change.plan import Cluster
from kquota.core.quotas.entity import DEFAULT
from kquota.documents.derive import picked, plain
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
                        **picked(config, "name value source alterable=is_alterable"),
                        "shadows": [picked(each, "name value source") for each in config.hidden],
                        "beside": None
                        if (other := beside(config, configs)) is None
                        else {**picked(other, "name value source"), "unless_inter_broker": config.is_protected is None},
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
        "cluster": plain(cluster),
        "broker": _broker(result.broker),
        "changed": result.changed,
        "before": dict(result.before),
        "after": dict(result.after),
    }


def _broker(broker: Broker) -> Any:
    return {"default": True} if broker is DEFAULT else broker
