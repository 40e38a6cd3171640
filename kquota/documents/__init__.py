"""Every format that enters or leaves kquota. Each has a JSON Schema in `schemas/`, named after its module."""
