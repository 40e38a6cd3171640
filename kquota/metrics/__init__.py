"""The brokers' own metrics as monitoring keeps them: their names, pages of exporters, and servers that are asked."""
