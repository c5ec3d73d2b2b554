"""Markdown for a terminal: read into blocks and spans, and painted as lines.

It is CommonMark with tables and strikethrough, but for what a terminal has no use for: HTML is shown as it stands,
links show where they lead, and no reference is looked up. Every step is linear in its text, however hostile. Text must
be clean before it comes here.
"""
