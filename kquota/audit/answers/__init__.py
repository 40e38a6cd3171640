"""Questions to findings: what other quotas would change (whatif.py), and which quotas to set (recommend.py)."""
