-- What a live run said outlives the death of the database: clients of a run in the background have seen it, and know no
-- more of it than its numbers. How soon a chunk must be on the disk is said with each.
ALTER TABLE chunks SET LOGGED;
