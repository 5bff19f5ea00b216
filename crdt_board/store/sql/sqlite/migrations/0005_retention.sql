-- Which versions the board keeps, as JSON; empty for all of them.
ALTER TABLE boards ADD COLUMN retention TEXT NOT NULL DEFAULT '';
