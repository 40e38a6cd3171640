"""A bounded workload on a live broker, and what the broker did to it (`kquota probe`).

- `load`: how much, how fast and how long, with bounds that no run exceeds.
- `client`: produces, fetches, asks, creates and deletes by librdkafka; the only module that knows confluent_kafka.
- `connections`: opens connections.
- `requestlog`: the thread time of a probe's requests from a broker's request log.
"""
