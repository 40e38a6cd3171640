"""The commands: one module each, which holds `command`."""
