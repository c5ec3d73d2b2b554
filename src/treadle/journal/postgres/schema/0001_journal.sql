-- The journal: runs, the entries they wrote, who may write them, and large data by its hash.
-- PostgreSQL keeps neither NUL nor a lone surrogate in a text. Such a character, and U+FDD0 itself, is kept as U+FDD0 and
-- the four hex digits of its number; bytes of data that are not UTF-8 are kept as the surrogates U+DC80 to U+DCFF.
-- Texts of any length are looked up by their hash, because an index holds at most some 2,700 bytes.

CREATE FUNCTION key_of(kept text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT pg_catalog.sha256(pg_catalog.convert_to(kept, 'UTF8'))
$$;

CREATE TABLE sessions (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL CONSTRAINT sessions_id UNIQUE,
  name       text NOT NULL,
  key_id     text NOT NULL,
  kind       text NOT NULL,
  metadata   text,
  created_at double precision NOT NULL,
  updated_at double precision NOT NULL,
  head       bigint
);
CREATE UNIQUE INDEX sessions_name ON sessions (key_id, name) WHERE name <> '';
CREATE INDEX sessions_updated ON sessions (updated_at);
CREATE INDEX sessions_head ON sessions (head) WHERE head IS NOT NULL;

-- A number is never used again, so a journal of a deleted run can never write into another one.
-- head and sha256 are the number and the hash of the last entry, known once the run has ended; a purge clears them.
CREATE TABLE runs (
  n               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id              text NOT NULL CONSTRAINT runs_id UNIQUE,
  response_id     text NOT NULL CONSTRAINT runs_response_id UNIQUE,
  conversation_id text NOT NULL,
  previous        bigint CONSTRAINT runs_previous_run REFERENCES runs (n) CHECK (previous < n),
  session_id      text CONSTRAINT runs_session REFERENCES sessions (id),
  key_id          text NOT NULL,
  protocol        text NOT NULL,
  model           text NOT NULL,
  status          text NOT NULL,
  store           boolean NOT NULL,
  background      boolean NOT NULL,
  created_at      double precision NOT NULL,
  ended_at        double precision,
  expires_at      double precision,
  stop            text,
  limit_name      text,
  usage           text,
  error           text,
  rounds          bigint NOT NULL,
  calls           bigint NOT NULL,
  epoch           bigint NOT NULL,
  idempotency_key text,
  request_sha256  text NOT NULL,
  head            bigint NOT NULL DEFAULT 0,
  sha256          text NOT NULL DEFAULT ''
);
CREATE INDEX runs_conversation ON runs USING hash (conversation_id);
CREATE INDEX runs_previous ON runs (previous) WHERE previous IS NOT NULL;
CREATE INDEX runs_of_session ON runs (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX runs_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX runs_idempotency ON runs (key_id, key_of(idempotency_key))
  WHERE idempotency_key IS NOT NULL;
ALTER TABLE sessions ADD CONSTRAINT sessions_head_run FOREIGN KEY (head) REFERENCES runs (n);

-- Apart from runs, so that the update which ends a run does not rewrite a long request.
CREATE TABLE requests (
  run  bigint PRIMARY KEY REFERENCES runs (n) ON DELETE CASCADE,
  body text NOT NULL
);

-- One row for each run that has not ended: whoever matches owner and epoch may append. head and sha256 are the number
-- and the hash of the last entry. No index holds what an append changes, so that it rewrites a row and nothing else.
CREATE TABLE leases (
  run    bigint PRIMARY KEY REFERENCES runs (n) ON DELETE CASCADE,
  owner  text NOT NULL,
  epoch  bigint NOT NULL,
  until  double precision NOT NULL,
  head   bigint NOT NULL,
  sha256 text NOT NULL,
  cancel boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- sha256 chains each entry to the one before it. fingerprint is that of the plan, for entries of kind plan.
CREATE TABLE events (
  run         bigint NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  seq         bigint NOT NULL,
  epoch       bigint NOT NULL,
  kind        text NOT NULL,
  is_input    boolean NOT NULL,
  at          double precision NOT NULL,
  name        text,
  call_id     text,
  item_id     text,
  content     text,
  data        text,
  blob        text,
  sha256      text NOT NULL,
  fingerprint text,
  PRIMARY KEY (run, seq)
);
CREATE UNIQUE INDEX events_one_call ON events (run, key_of(call_id))
  WHERE kind = 'tool_call' AND NOT is_input;
CREATE UNIQUE INDEX events_one_result ON events (run, key_of(call_id))
  WHERE kind = 'tool_result' AND NOT is_input;
CREATE INDEX events_call ON events USING hash (call_id) WHERE kind = 'tool_call' AND NOT is_input;
CREATE INDEX events_item ON events USING hash (item_id) WHERE item_id IS NOT NULL;
CREATE INDEX events_fingerprint ON events USING hash (fingerprint) WHERE fingerprint IS NOT NULL;

CREATE TABLE blobs (
  sha256 text PRIMARY KEY,
  data   bytea NOT NULL
);

-- Which runs need a blob; the last one to go takes the blob with it.
CREATE TABLE blob_uses (
  run  bigint NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  blob text NOT NULL REFERENCES blobs (sha256),
  PRIMARY KEY (run, blob)
);
CREATE INDEX blob_uses_blob ON blob_uses (blob);

-- What a live run said before it was durable: `count` events from number `first` on, as a JSON array.
-- Not written to the log of the database: its death empties this table, and whoever speaks says it again.
-- Without a foreign key, which would lock, and so log, a row of runs for every chunk.
CREATE UNLOGGED TABLE chunks (
  run   bigint NOT NULL,
  first bigint NOT NULL,
  count bigint NOT NULL,
  data  bytea NOT NULL,
  PRIMARY KEY (run, first)
);

-- The number that the first reader found for an entry, so that all later ones count alike.
CREATE TABLE pins (
  run    bigint NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  seq    bigint NOT NULL,
  number bigint NOT NULL,
  PRIMARY KEY (run, seq)
);

-- A text for people: what PostgreSQL cannot hold is shown as JSON would write it.
CREATE FUNCTION readable(kept text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE WHEN strpos(kept, U&'\FDD0') = 0 THEN kept
              ELSE regexp_replace(kept, U&'\FDD0([0-9a-f]{4})', '\\u\1', 'g') END
$$;

-- Bytes as text where they are one.
CREATE FUNCTION readable_bytes(kept bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN convert_from(kept, 'UTF8');
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END
$$;

-- A text as JSON where PostgreSQL can read it; the escapes that it refuses are shown as they were written.
CREATE FUNCTION readable_json(kept text) RETURNS json LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  mended text;
BEGIN
  PERFORM kept::jsonb;
  RETURN kept::json;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  BEGIN
    mended := regexp_replace(kept, '(?<!\\)((?:\\\\)*)\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1\\\\u\2', 'g');
    PERFORM mended::jsonb;
    RETURN mended::json;
  EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
  END;
END
$$;

-- The conversation in the columns of a chat backend. Data that is not JSON which PostgreSQL can read gives NULLs.
CREATE VIEW messages AS
WITH entries AS (
  SELECT e.run, e.seq, e.kind, e.name, e.call_id, e.content, e.at, e.is_input,
         readable_json(coalesce(e.data, readable_bytes(b.data))) AS data
  FROM events e LEFT JOIN blobs b ON b.sha256 = e.blob
  WHERE e.kind IN ('system', 'user', 'assistant', 'tool_call', 'tool_result')
), outputs AS (
  SELECT *, CASE WHEN kind = 'tool_result' AND json_typeof(data) = 'object' THEN data ->> 'output' END AS output
  FROM entries
), shaped AS (
  SELECT *, coalesce(json_typeof(readable_json(output)) IN ('object', 'array'), false) AS is_structured
  FROM outputs
)
SELECT r.id AS run_id,
       s.seq AS seq,
       r.conversation_id AS conversation_id,
       r.session_id AS session_id,
       CASE s.kind
         WHEN 'tool_call' THEN 'assistant'
         WHEN 'tool_result' THEN 'tool'
         ELSE coalesce(s.data #>> '{item,role}', s.kind)
       END AS role,
       CASE s.kind
         WHEN 'tool_call' THEN NULL
         WHEN 'tool_result' THEN CASE WHEN s.is_structured THEN NULL ELSE readable(coalesce(s.output, s.content)) END
         ELSE readable(s.content)
       END AS content,
       CASE s.kind
         WHEN 'tool_call' THEN NULL
         WHEN 'tool_result' THEN CASE WHEN s.is_structured THEN s.output END
         ELSE (s.data #> '{item,content}')::text
       END AS content_json,
       CASE WHEN s.kind = 'tool_call' AND s.data IS NOT NULL THEN
         json_build_array(json_build_object('id', s.data ->> 'id', 'type', s.data ->> 'type',
                                            'function', s.data -> 'function'))::text
       END AS tool_calls,
       CASE WHEN s.kind = 'tool_result' THEN readable(s.call_id) END AS tool_call_id,
       CASE WHEN s.kind = 'tool_call' THEN (s.data -> 'function')::text END AS function_call,
       readable(s.name) AS name,
       s.is_input AS is_input,
       s.at AS created_at
FROM shaped s JOIN runs r ON r.n = s.run;
