"""Yjs servers side by side: ours, and others from their registries. ``python -m benchmarks.peers --help``."""
