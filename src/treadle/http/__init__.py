"""HTTP/1.1 over asyncio and httptools: where to, how to get there, and what comes back.

It does only what asking needs: no redirect, no cookie. It knows no endpoint, no tool and no protocol, and looks inside
no body.
"""
