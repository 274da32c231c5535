"""Engines on several machines, run by Ray Serve: the front routes requests to them and hears what they make.

Only `replica` runs elsewhere. The front has a `link` to each replica, and a `runner` for each model.
"""
