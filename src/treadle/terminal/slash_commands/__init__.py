"""The commands inside a chat, as a table; each is a few lines over the conversation, the screen or the policy."""
