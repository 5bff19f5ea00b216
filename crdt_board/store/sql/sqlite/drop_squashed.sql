DELETE FROM entries
WHERE place > :board << 36 AND place <= :last
