"""The order of Java's hash tables against Java's own, with texts and with Kafka's ids as keys."""

from kquota.core.java import hash_order, string_hash, uuid_hash
from tests.differential.java_programs import printed


def test_the_order_is_that_of_java() -> None:
    lines = printed("HashOrder.java", 20261121, 600, release="4.4.0")
    assert len(lines) == 3 * 600
    for number, (given, walked, room) in enumerate(zip(lines[::3], lines[1::3], lines[2::3], strict=True)):
        hash_of = string_hash if number % 2 == 0 else uuid_hash
        assert hash_order(given.split(), hash_of, int(room)) == walked.split()
