"""Live metrics beside the quotas that govern them."""
