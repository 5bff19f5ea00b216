"""The server of CRDT Board: rooms, connections, HTTP and the command line."""
