"""What is being worked on, apart from the chat: facts, draft, locks and proposals.

Only a person confirms facts. No wire word, no model here.
"""
