"""`hightide serve`: an HTTP server with the API of OpenAI on top of `hightide.Engine`.

A front process speaks HTTP and knows text. Each model has a worker process with the engine and the device, which may
die and is started again. See `docs/guide/server.md`.
"""
