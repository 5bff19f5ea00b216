"""How agents work together on one board: what is decided by its writer, and by nobody else (DESIGN §7).

Leases, tasks and their like are *records*, one JSON value each in the root map ``$team`` of the board's document: so
every replica reads them live, and forks and crashes find them where they were. An agent asks for an *operation*; the
writer of the board decides on it in a `Draft` of the records and appends what it changes as one journal entry, or with
the entry of a commit. All modules here are pure: they decide over values, and neither wait nor store.

Each concern has a module with its record, its operations, and a function for each that decides:
`leases`, `cursors`, `reactions`, `approvals`. `operations` is the union of all of them.
"""
