"""Measures the routes of each choice on an adapter and keeps the fastest: `hightide tune`."""
