"""The ledger: what each request is charged to, and what comes of it."""
