-- Approvals: one question for each call that a person must agree to, decided once, and the rules that answer for a person.

-- question and decision are JSON; used_by is the run that carried the call on, where that is another than the one that asked.
CREATE TABLE approvals (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  run        INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
  call_id    ANY NOT NULL,
  key_id     TEXT NOT NULL,
  status     TEXT NOT NULL,
  created_at REAL NOT NULL,
  expires_at REAL NOT NULL,
  used_by    TEXT,
  question   TEXT NOT NULL,
  decision   TEXT
) STRICT;
CREATE UNIQUE INDEX approvals_call ON approvals (run, call_id);
CREATE INDEX approvals_pending ON approvals (n) WHERE status = 'pending';
CREATE INDEX approvals_used ON approvals (used_by) WHERE used_by IS NOT NULL;

-- A rule without a session holds everywhere.
CREATE TABLE approval_rules (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  key_id     TEXT NOT NULL,
  session_id TEXT REFERENCES sessions (id) ON DELETE CASCADE,
  tool       TEXT NOT NULL,
  created_at REAL NOT NULL,
  rule       TEXT NOT NULL
) STRICT;
CREATE INDEX approval_rules_tool ON approval_rules (tool);
CREATE INDEX approval_rules_session ON approval_rules (session_id) WHERE session_id IS NOT NULL;
