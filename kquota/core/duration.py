"""Lengths of time for people."""

_DAYS_FROM = 7 * 24
"""From so many hours on, a length of time is shown in days."""


def duration(milliseconds: int) -> str:
    """A length of time: `398 ms`, `12.5 s`, `18 min 10 s`, `3 h 3 min`, `64 days`."""
    if milliseconds < 995:  # beside 1.0 s, 999 ms would look exact
        return f"{milliseconds} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _DAYS_FROM:
        return f"{round(milliseconds / 86_400_000):,} days"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
