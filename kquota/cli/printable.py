"""Text that a terminal shows and never obeys."""


def safe(text: object) -> str:
    """Text with control characters spelled out: names come from a cluster and must not drive a terminal."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == " " else char.encode("unicode_escape").decode() for char in text
    )
