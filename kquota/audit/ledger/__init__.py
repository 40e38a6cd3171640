"""The ledger: what each request is charged to, and what comes of it.

charge.py: batches → ledgers. Each quota is resolved once for each client.
rows.py: a ledger, which is rows and the table of charges that they name.
part.py: the rows of ledgers by counter and time, and the enforcement kernel on them.
replay.py: ledgers → findings of their counters.
loops.py: the loops over rows, compiled where numba is installed.
retries.py and fetch_sizes.py: the sizes of throttled fetches, which no log holds.
timeline.py and demand.py: what else is counted of the rows while they are together.
"""
