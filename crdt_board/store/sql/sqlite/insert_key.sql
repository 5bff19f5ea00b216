INSERT INTO keys (board, key, fingerprint, version)
VALUES (:board, :key, :fingerprint, :version)
