"""The audit of usage that is still being written.

The first half of the batch audit runs as usage comes, and its ledgers go to the spool. The findings are made by the
second half from the whole spool, so they are the findings of the batch audit. Episodes come at once, from
counters whose state is carried from turn to turn.
"""
