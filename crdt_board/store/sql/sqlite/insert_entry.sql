INSERT INTO entries (place, kind, author, time_ms, paths, checkpoint, payload, hash)
VALUES ((:board << 36) + :seq, :kind, :author, :time_ms, :paths, :checkpoint, :payload, :hash)
