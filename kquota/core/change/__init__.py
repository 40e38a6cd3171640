"""Changes of quotas before they are written: plans, their review, differences, history and lint."""
