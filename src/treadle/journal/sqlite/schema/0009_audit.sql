-- What a run was when it began, where its row says something else now (see docs/journal.md), and the hash of what it is:
-- JSON, written when the run before it, its session or its content is forgotten.
ALTER TABLE runs ADD COLUMN amended TEXT;

-- What runs of keys with a budget may use before they are charged. It counts until its run is charged, or until it is past
-- its time and no run and no debt is left of it.
CREATE TABLE reservations (
  run_id TEXT PRIMARY KEY NOT NULL,
  key_id TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  usd    REAL NOT NULL,
  until  REAL NOT NULL
) STRICT;
CREATE INDEX reservations_key ON reservations (key_id);
