"""How an answer is carried: what the client asks of it beside the body, who still reads it, how it is told again.

No routes, and no protocol's words.
"""
