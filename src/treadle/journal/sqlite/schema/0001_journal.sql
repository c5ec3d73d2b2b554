-- The journal: runs, the entries they wrote, who may write them, and large data by its hash.
-- Columns of type ANY hold text; a text that is not valid Unicode (a lone surrogate) is kept as a BLOB of its bytes.

CREATE TABLE sessions (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  name       TEXT NOT NULL,
  key_id     TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  head       INTEGER REFERENCES runs (n)
) STRICT;
CREATE UNIQUE INDEX sessions_name ON sessions (key_id, name) WHERE name <> '';
CREATE INDEX sessions_updated ON sessions (updated_at);
CREATE INDEX sessions_head ON sessions (head) WHERE head IS NOT NULL;

-- AUTOINCREMENT: a number is never used again, so a journal of a deleted run can never write into another one.
CREATE TABLE runs (
  n               INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  response_id     TEXT NOT NULL UNIQUE,
  conversation_id TEXT NOT NULL,
  previous        INTEGER REFERENCES runs (n) CHECK (previous < n),
  session_id      TEXT REFERENCES sessions (id),
  key_id          TEXT NOT NULL,
  protocol        TEXT NOT NULL,
  model           TEXT NOT NULL,
  status          TEXT NOT NULL,
  store           INTEGER NOT NULL,
  background      INTEGER NOT NULL,
  created_at      REAL NOT NULL,
  ended_at        REAL,
  expires_at      REAL,
  stop            TEXT,
  limit_name      TEXT,
  usage           TEXT,
  error           TEXT,
  rounds          INTEGER NOT NULL,
  calls           INTEGER NOT NULL,
  epoch           INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_conversation ON runs (conversation_id);
CREATE INDEX runs_previous ON runs (previous) WHERE previous IS NOT NULL;
CREATE INDEX runs_session ON runs (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX runs_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;

-- Apart from runs, so that the update which ends a run does not rewrite a long request.
CREATE TABLE requests (
  run  INTEGER PRIMARY KEY REFERENCES runs (n) ON DELETE CASCADE,
  body ANY NOT NULL
) STRICT;

-- One row for each run that has not ended: whoever matches owner and epoch may append; head is the last seq.
CREATE TABLE leases (
  run   INTEGER PRIMARY KEY REFERENCES runs (n) ON DELETE CASCADE,
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  until REAL NOT NULL,
  head  INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
  run      INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  seq      INTEGER NOT NULL,
  epoch    INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  is_input INTEGER NOT NULL,
  at       REAL NOT NULL,
  name     ANY,
  call_id  ANY,
  item_id  ANY,
  content  ANY,
  data     ANY,
  blob     TEXT,
  UNIQUE (run, seq)
) STRICT;
CREATE UNIQUE INDEX events_one_call ON events (call_id, run) WHERE kind = 'tool_call' AND is_input = 0;
CREATE UNIQUE INDEX events_one_result ON events (call_id, run) WHERE kind = 'tool_result' AND is_input = 0;
CREATE INDEX events_item ON events (item_id) WHERE item_id IS NOT NULL;

CREATE TABLE blobs (
  n      INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL UNIQUE,
  data   BLOB NOT NULL
) STRICT;

-- Which runs need a blob; the last one to go takes the blob with it.
CREATE TABLE blob_uses (
  run  INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  blob TEXT NOT NULL REFERENCES blobs (sha256),
  PRIMARY KEY (run, blob)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_uses_blob ON blob_uses (blob);

-- The conversation in the columns of a chat backend. Data that is not JSON which SQLite can read gives NULLs.
CREATE VIEW messages AS
WITH entries AS (
  SELECT e.run, e.seq, e.kind, e.name, e.call_id, e.content, e.at, e.is_input,
         CASE WHEN typeof(coalesce(e.data, CAST(b.data AS TEXT))) = 'text'
                   AND json_valid(coalesce(e.data, CAST(b.data AS TEXT)))
              THEN coalesce(e.data, CAST(b.data AS TEXT)) END AS data
  FROM events e LEFT JOIN blobs b ON b.sha256 = e.blob
  WHERE e.kind IN ('system', 'user', 'assistant', 'tool_call', 'tool_result')
), outputs AS (
  SELECT *, CASE WHEN kind = 'tool_result' THEN data ->> '$.output' END AS output FROM entries
), shaped AS (
  SELECT *, CASE WHEN json_valid(output) THEN json_type(output) IN ('object', 'array') ELSE 0 END AS is_structured
  FROM outputs
)
SELECT r.id AS run_id,
       s.seq AS seq,
       r.conversation_id AS conversation_id,
       r.session_id AS session_id,
       CASE s.kind
         WHEN 'tool_call' THEN 'assistant'
         WHEN 'tool_result' THEN 'tool'
         ELSE coalesce(s.data ->> '$.item.role', s.kind)
       END AS role,
       CASE s.kind
         WHEN 'tool_call' THEN NULL
         WHEN 'tool_result' THEN CASE WHEN s.is_structured THEN NULL ELSE coalesce(s.output, s.content) END
         ELSE s.content
       END AS content,
       CASE s.kind
         WHEN 'tool_call' THEN NULL
         WHEN 'tool_result' THEN CASE WHEN s.is_structured THEN s.output END
         ELSE s.data -> '$.item.content'
       END AS content_json,
       CASE WHEN s.kind = 'tool_call' AND s.data IS NOT NULL THEN
         json_array(json_object('id', s.data ->> '$.id', 'type', s.data ->> '$.type',
                                'function', json(s.data -> '$.function')))
       END AS tool_calls,
       CASE WHEN s.kind = 'tool_result' THEN s.call_id END AS tool_call_id,
       CASE WHEN s.kind = 'tool_call' THEN s.data -> '$.function' END AS function_call,
       s.name AS name,
       s.is_input AS is_input,
       s.at AS created_at
FROM shaped s JOIN runs r ON r.n = s.run;
