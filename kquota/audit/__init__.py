"""The audit: usage exports → resolve → order per sensor → enforcement → findings. The only room that knows Spark.

sources/    one module per export dialect: splits of files → batches of usage events
pack.py     batch → segments: rows sorted by sensor, one blob per bucket (Spark's map side)
replay.py   segments → findings: order in time, run the enforcement kernel (Spark's reduce side)
job.py      the Spark job around the two
findings.py what comes out
"""
