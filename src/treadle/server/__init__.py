"""The HTTP server: the ASGI application in front of the runtime, and the web pages."""
