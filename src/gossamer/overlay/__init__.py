"""The overlays: each carries events by its own structure. They do not import each other."""
