"""The ledger: what each request is charged to, and what comes of it.

charge.py  batches → ledgers: each quota is resolved once for each client
rows.py    a ledger: rows, and who they are charged to; names.py is what a charger remembers
part.py    the rows of ledgers by counter and time, and what the enforcement kernel makes of them
replay.py  ledgers → findings of their counters
loops.py   the loops over rows, compiled where numba is installed
"""
