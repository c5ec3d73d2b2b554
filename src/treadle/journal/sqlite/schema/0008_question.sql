-- The number of the last entry of a run's input in which a user speaks, 0 where there is none, NULL for older runs: by it
-- a long conversation is known again without going through it.
ALTER TABLE runs ADD COLUMN question INTEGER;
