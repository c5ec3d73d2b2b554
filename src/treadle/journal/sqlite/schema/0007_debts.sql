-- Runs of keys that ended and are not charged yet: written with the end, gone with the charge, so that neither is lost
-- and neither is done twice. usage is JSON, as in runs.
CREATE TABLE debts (
  run_id   TEXT PRIMARY KEY NOT NULL,
  key_id   TEXT NOT NULL,
  model    TEXT NOT NULL,
  ended_at REAL NOT NULL,
  usage    TEXT
) STRICT;
CREATE INDEX debts_ended ON debts (ended_at);
