-- What lets a run survive its process: the chain of hashes, live chunks, requests to cancel, idempotency, pins.

-- head and sha256 are the number and the hash of the last entry, known once the run has ended; a purge clears them.
ALTER TABLE runs ADD COLUMN idempotency_key TEXT;
ALTER TABLE runs ADD COLUMN request_sha256 TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN head INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN sha256 TEXT NOT NULL DEFAULT '';
UPDATE runs SET head = (SELECT coalesce(max(e.seq), 0) FROM events e WHERE e.run = runs.n) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX runs_idempotency ON runs (key_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- sha256 is the hash of the last entry, the start of the next one's. changes counts every write to the run.
ALTER TABLE leases ADD COLUMN sha256 TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN cancel INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX leases_cancel ON leases (owner) WHERE cancel = 1;

-- Entries from before the chain have no sha256. fingerprint is that of the plan, for entries of kind plan.
ALTER TABLE events ADD COLUMN sha256 TEXT;
ALTER TABLE events ADD COLUMN fingerprint TEXT;
UPDATE events SET fingerprint = CASE WHEN json_valid(data) THEN data ->> '$.fingerprint' END
WHERE kind = 'plan' AND typeof(data) = 'text';
CREATE INDEX events_fingerprint ON events (fingerprint, run) WHERE fingerprint IS NOT NULL;

-- What a live run said before it was durable: `count` events from number `first` on, as a JSON array.
CREATE TABLE chunks (
  run   INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  first INTEGER NOT NULL,
  count INTEGER NOT NULL,
  data  BLOB NOT NULL,
  PRIMARY KEY (run, first)
) STRICT, WITHOUT ROWID;

-- The number that the first reader found for an entry, so that all later ones count alike.
CREATE TABLE pins (
  run    INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  seq    INTEGER NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- kind is session or conversation; metadata is a JSON object.
ALTER TABLE sessions ADD COLUMN kind TEXT NOT NULL DEFAULT 'session';
ALTER TABLE sessions ADD COLUMN metadata ANY;
