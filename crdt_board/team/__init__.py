"""What an agent's handle on a board offers for working together: each is a shell around `crdt_board.coordination`.

The shells send operations to the writer of the board, wait for what others do, and keep what is held alive. They decide
nothing.
"""
