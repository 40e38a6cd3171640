"""A bounded workload on a live broker, and what the broker did to it (`kquota probe`).

- `client`: the load with bounds that no run exceeds, and the client that sends it.
- `run`: one probe from its preparation to the comparison with the prediction.

The package is a function as well: `kquota.probe(...)` is `kquota.probe.run.probe`.
"""

from kquota.callables import make_callable

make_callable(__name__)
