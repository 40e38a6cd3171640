"""What a recording shows of each counter and its clients, and the verdict that follows.

Of samples: accounts.py and bounds.py, judged by judge.py. Of requests: clients.py says of which kind a client is,
simulate.py runs it, and prediction.py says what it will meet. in_force.py asks which quotas were in
force. verdict.py decides on each counter, once, from all of it; then the findings are laid out.
"""
