-- What many writes are handed over as, a row for each: quicker to write and to read than an array for each column.
-- They may be there already, where an older copy of the tables was put in their place.
DROP TYPE IF EXISTS entry, move, ending, beginning, telling;
CREATE TYPE entry AS (
  run         bigint,
  seq         bigint,
  kind        text,
  is_input    boolean,
  at          double precision,
  name        text,
  call_id     text,
  item_id     text,
  content     text,
  data        text,
  blob        text,
  sha256      text,
  fingerprint text
);
CREATE TYPE move AS (
  run        bigint,
  owner      text,
  epoch      bigint,
  head       bigint,
  sha256     text,
  new_head   bigint,
  new_sha256 text,
  lease_s    double precision
);
CREATE TYPE ending AS (
  run        bigint,
  owner      text,
  epoch      bigint,
  head       bigint,
  sha256     text,
  new_head   bigint,
  new_sha256 text,
  status     text,
  ended_at   double precision,
  stop       text,
  limit_name text,
  usage      text,
  error      text,
  rounds     bigint,
  calls      bigint
);
CREATE TYPE beginning AS (
  place           bigint,
  id              text,
  response_id     text,
  conversation_id text,
  previous_id     text,
  session_id      text,
  key_id          text,
  protocol        text,
  model           text,
  status          text,
  store           boolean,
  background      boolean,
  created_at      double precision,
  expires_at      double precision,
  idempotency_key text,
  request_sha256  text,
  body            text,
  owner           text,
  lease_s         double precision,
  new_head        bigint,
  new_sha256      text
);

CREATE TYPE telling AS (
  run       bigint,
  owner     text,
  epoch     bigint,
  keep_from bigint,
  first     bigint,
  count     bigint,
  data      bytea,
  lease_s   double precision
);

-- Entries are only ever inserted beside the lease or the run that the same statement holds, so that looking for the run
-- again, and locking it, for every one of them says nothing new. What the foreign key did for a run that is deleted a
-- trigger does. Its name comes after those of the foreign keys: when it fires the lease is gone, so that whoever wrote
-- has committed, and nobody can write any more.
ALTER TABLE events DROP CONSTRAINT events_run_fkey;
CREATE OR REPLACE FUNCTION forget_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('DELETE FROM %I.events WHERE run = $1', TG_TABLE_SCHEMA) USING OLD.n;
  RETURN NULL;
END
$$;
CREATE TRIGGER runs_forget_events AFTER DELETE ON runs FOR EACH ROW EXECUTE FUNCTION forget_events();
