"""What a recording shows of each counter and its clients, and the verdict that follows.

Samples are judged by bounds. Of requests the clients are simulated. Each counter gets its verdict once, from all of it.
"""
