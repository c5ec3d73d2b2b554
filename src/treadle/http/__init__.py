"""HTTP/1.1 over asyncio and httptools: the server edge (`server_*`) and the client (`client_*`)."""
