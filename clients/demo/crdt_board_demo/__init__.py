"""A team of five scripted agents on one board, while its server and one of the agents are killed under them.

Knows the server only as a process that it starts: what the agents use is the client.
"""
