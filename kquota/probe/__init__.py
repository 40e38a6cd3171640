"""A bounded workload on a live broker, and what the broker did to it (`kquota probe`).

- `load`: how much, how fast and how long, with bounds that no run exceeds.
- `client`: produces, fetches and asks by librdkafka.
- `run`: one probe from its preparation to the comparison with the prediction.
- `requestlog`: the thread time of a probe's requests from a broker's request log.

The package is a function as well: `kquota.probe(...)` is `kquota.probe.run.probe`.
"""

from kquota.callables import make_callable

make_callable(__name__)
