"""The audit: usage exports → resolve → order per sensor → enforcement → findings. The only room that knows Spark.

sources/    one module per export dialect: splits of files → batches of usage events, or samples
pack.py     batch → segments: rows sorted by sensor, one blob per bucket (the map side)
replay.py   segments → findings: order in time, run the enforcement kernel (the reduce side)
judge.py    samples → findings, by what follows from them (bounds.py), on the reduce side
stages.py   the two sides as tasks
local.py    an engine for the tasks: processes on this machine
spark.py    another: a Spark job
findings.py what comes out
"""
