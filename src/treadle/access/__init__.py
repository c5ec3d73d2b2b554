"""Who may do what, and how much of it: keys, what they may reach, rates and budgets."""
