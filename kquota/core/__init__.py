"""The domain, pure: no IO, no clock, no logging, no environment. Parsed at the door, valid inside."""
