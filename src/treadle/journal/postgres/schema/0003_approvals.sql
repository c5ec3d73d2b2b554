-- Approvals: one question for each call that a person must agree to, decided once, and the rules that answer for a person.

-- question and decision are JSON; used_by is the run that carried the call on, where that is another than the one that asked.
CREATE TABLE approvals (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL CONSTRAINT approvals_id UNIQUE,
  run        bigint NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  call_id    text NOT NULL,
  key_id     text NOT NULL,
  status     text NOT NULL,
  created_at double precision NOT NULL,
  expires_at double precision NOT NULL,
  used_by    text,
  question   text NOT NULL,
  decision   text
);
CREATE UNIQUE INDEX approvals_call ON approvals (run, key_of(call_id));
CREATE INDEX approvals_pending ON approvals (n) WHERE status = 'pending';
CREATE INDEX approvals_used ON approvals (used_by) WHERE used_by IS NOT NULL;

-- A rule without a session holds everywhere.
CREATE TABLE approval_rules (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL CONSTRAINT approval_rules_id UNIQUE,
  key_id     text NOT NULL,
  session_id text REFERENCES sessions (id) ON DELETE CASCADE,
  tool       text NOT NULL,
  created_at double precision NOT NULL,
  rule       text NOT NULL
);
CREATE INDEX approval_rules_tool ON approval_rules (tool);
CREATE INDEX approval_rules_session ON approval_rules (session_id) WHERE session_id IS NOT NULL;
