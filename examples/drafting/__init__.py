"""A team drafts a text on one board: a starting point to copy and change. ``python -m examples.drafting --help``."""
