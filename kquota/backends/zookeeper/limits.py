"""How much at once: what servers and Java clients can take, and how much is sent before an answer is awaited."""

from typing import Final

# A server drops the session on a request beyond jute.maxbuffer (1 MB by default) and says nothing but "connection
# lost": requests are counted before they are sent.
REQUEST_BYTES: Final = 512 * 1024
NODE_BYTES: Final = 1_000_000
READS_PER_REQUEST: Final = 1000
ENTITIES_PER_TRANSACTION: Final = 500
WINDOW: Final = 4
"""Bulk requests in flight."""
SINGLE_WINDOW: Final = 500
"""Requests about one node in flight."""
MAX_CONFLICTS: Final = 100
"""How often an entity may lose the race to another writer."""
NAMES_BYTES_WARNING: Final = 900_000
"""Java clients, brokers among them, cannot list children whose names take more than 1 MB."""
