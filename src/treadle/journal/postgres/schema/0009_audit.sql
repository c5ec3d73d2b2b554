-- What a run was when it began, where its row says something else now (see docs/journal.md), and the hash of what it is:
-- JSON, written when the run before it, its session or its content is forgotten.
ALTER TABLE runs ADD COLUMN amended text;

-- What runs of keys with a budget may use before they are charged. It counts until its run is charged, or until it is past
-- its time and no run and no debt is left of it.
CREATE TABLE reservations (
  run_id text PRIMARY KEY,
  key_id text NOT NULL,
  tokens bigint NOT NULL,
  usd    double precision NOT NULL,
  until  double precision NOT NULL
);
CREATE INDEX reservations_key ON reservations (key_id);
