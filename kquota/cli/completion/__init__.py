"""What the shells complete when Tab is pressed."""
