-- Workspaces: the newest state of each, one change for each of its versions, and the proposals to its facts.
-- sha256 is the hash of the last change, the start of the next one's.

CREATE TABLE workspaces (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL CONSTRAINT workspaces_id UNIQUE,
  name       text NOT NULL,
  key_id     text NOT NULL,
  session_id text CONSTRAINT workspaces_session UNIQUE REFERENCES sessions (id) ON DELETE SET NULL,
  created_at double precision NOT NULL,
  updated_at double precision NOT NULL,
  version    bigint NOT NULL,
  sha256     text NOT NULL,
  state      text NOT NULL
);
CREATE UNIQUE INDEX workspaces_name ON workspaces (key_id, name) WHERE name <> '';
CREATE INDEX workspaces_updated ON workspaces (updated_at);

-- record says who did what and why; sha256 chains it to the one before; snapshot is the whole state, now and then.
CREATE TABLE workspace_changes (
  workspace bigint NOT NULL REFERENCES workspaces (n) ON DELETE CASCADE,
  version   bigint NOT NULL,
  run_id    text,
  call_id   text,
  sha256    text NOT NULL,
  record    text NOT NULL,
  snapshot  text,
  PRIMARY KEY (workspace, version)
);
CREATE UNIQUE INDEX workspace_changes_call ON workspace_changes (workspace, run_id, key_of(call_id))
  WHERE call_id IS NOT NULL;

CREATE TABLE proposals (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL CONSTRAINT proposals_id UNIQUE,
  workspace  bigint NOT NULL REFERENCES workspaces (n) ON DELETE CASCADE,
  status     text NOT NULL,
  is_told    boolean NOT NULL,
  created_at double precision NOT NULL,
  proposal   text NOT NULL,
  decision   text
);
CREATE INDEX proposals_workspace ON proposals (workspace, status);
CREATE INDEX proposals_open ON proposals (n) WHERE status = 'open';
