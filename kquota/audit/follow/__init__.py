"""The audit of usage that is still being written.

tail.py        which files there are, and what came in each since the last look; the same of a topic.
checkpoint.py  what is kept on the disk: the state, and ledgers for the findings at the end.
counters.py    the state of one broker's counters, as a value that goes to bytes and back.
episodes.py    delays without a pause become episodes; who was loud in the last half minute.
follow.py      the follower: a turn reads what came, and gives the episodes that follow.
frames.py      the same of a streaming DataFrame of Spark.
sinks.py       where episodes go: a file, an Alertmanager.

The first half of the batch audit runs as usage comes, and its ledgers go to the spool. The findings are made by the
second half from the whole spool, so they are the findings of the batch audit. Episodes come at once, from
counters whose state is carried from turn to turn.
"""
