"""`hightide web`: a model as a folder of static files that a browser runs on its own GPU.

The page gets what the planner made, not a planner: buffers, WGSL, and for every level the list of dispatches.
"""
