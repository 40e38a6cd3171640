#!/usr/bin/env bash
# The main job on embedded parts: quotas in a real ZooKeeper, explained, and replayed against the request log of a real
# Kafka broker. Everything it starts it stops again; everything it writes is in a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
export KQUOTA_SANDBOX="$work/sandbox"
trap 'kquota sandbox stop 2>/dev/null; rm -rf "$work"' EXIT

bold=''; plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m'; plain=$'\e[0m'; fi
say() { printf '\n%s# %s%s\n' "$bold" "$1" "$plain"; }
run() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; "$@"; }

say "A real ZooKeeper on the loopback address"
KQUOTA_ZOOKEEPER=$(kquota sandbox start)
export KQUOTA_ZOOKEEPER
echo "KQUOTA_ZOOKEEPER=$KQUOTA_ZOOKEEPER"

say "Set quotas, in the words of kafka-configs"
run kquota alter --user alice --add-config producer_byte_rate=10MB,consumer_byte_rate=20MiB
run kquota alter --user alice --client reports --add-config request_percentage=50%
run kquota alter --client-defaults --add-config producer_byte_rate=1MB
run kquota alter --ip 10.0.0.7 --add-config connection_creation_rate=20 --dry-run
run kquota describe

say "Which quota governs a client, and whose counter is it?"
run kquota resolve --user alice --client reports

say "Who was throttled on the broker of this recorded request log, and by which quota? A job of Spark finds out"
log=tests/data/request_log
audit=(kquota audit $log/kafka-request.log.gz --quotas $log/quotas.json --quarantine "$work/quarantine.jsonl")
run "${audit[@]}" --engine spark --out "$work/spark"

say "The same without Spark, in one process of this machine"
run "${audit[@]}" --engine local --out "$work/local" > "$work/table"
head -n 1 "$work/table"
diff -r "$work/spark" "$work/local"
echo "The findings of both are the same, byte for byte."
