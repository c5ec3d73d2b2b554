-- Runs of keys that ended and are not charged yet: written with the end, gone with the charge, so that neither is lost
-- and neither is done twice. usage is JSON, as in runs.
CREATE TABLE debts (
  run_id   text PRIMARY KEY,
  key_id   text NOT NULL,
  model    text NOT NULL,
  ended_at double precision NOT NULL,
  usage    text
);
CREATE INDEX debts_ended ON debts (ended_at);
