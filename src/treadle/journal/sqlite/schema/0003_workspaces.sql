-- Workspaces: the newest state of each, one change for each of its versions, and the proposals to its facts.
-- sha256 is the hash of the last change, the start of the next one's.

CREATE TABLE workspaces (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  name       TEXT NOT NULL,
  key_id     TEXT NOT NULL,
  session_id TEXT UNIQUE REFERENCES sessions (id) ON DELETE SET NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  version    INTEGER NOT NULL,
  sha256     TEXT NOT NULL,
  state      TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX workspaces_name ON workspaces (key_id, name) WHERE name <> '';
CREATE INDEX workspaces_updated ON workspaces (updated_at);

-- record says who did what and why; sha256 chains it to the one before; snapshot is the whole state, now and then.
CREATE TABLE workspace_changes (
  workspace INTEGER NOT NULL REFERENCES workspaces (n) ON DELETE CASCADE,
  version   INTEGER NOT NULL,
  run_id    ANY,
  call_id   ANY,
  sha256    TEXT NOT NULL,
  record    TEXT NOT NULL,
  snapshot  TEXT,
  PRIMARY KEY (workspace, version)
) STRICT;
CREATE UNIQUE INDEX workspace_changes_call ON workspace_changes (workspace, run_id, call_id) WHERE call_id IS NOT NULL;
CREATE INDEX workspace_changes_snapshot ON workspace_changes (workspace, version) WHERE snapshot IS NOT NULL;

CREATE TABLE proposals (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  workspace  INTEGER NOT NULL REFERENCES workspaces (n) ON DELETE CASCADE,
  status     TEXT NOT NULL,
  is_told    INTEGER NOT NULL,
  created_at REAL NOT NULL,
  proposal   TEXT NOT NULL,
  decision   TEXT
) STRICT;
CREATE INDEX proposals_workspace ON proposals (workspace, status);
CREATE INDEX proposals_open ON proposals (n) WHERE status = 'open';
