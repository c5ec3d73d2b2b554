"""Who may do what, and how much of it: keys, what they may reach, rates and budgets.

It knows keys, patterns and numbers; not HTTP, not a run's inside. The server asks it before anything is started.
"""
