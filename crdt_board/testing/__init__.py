"""Public tools for testing a store, or an application of CRDT Board."""
