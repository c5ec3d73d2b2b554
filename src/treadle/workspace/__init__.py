"""What is being worked on, apart from the chat: facts, draft, locks and proposals."""
