-- The processes that share this store: what each is and has, so that they can be compared.
CREATE TABLE replicas (
  owner      TEXT PRIMARY KEY,
  facts      TEXT NOT NULL,
  started_at REAL NOT NULL,
  seen_at    REAL NOT NULL
) STRICT;

-- Fingerprints of the secrets under which keys were made or proved, so that a process with another one knows it.
CREATE TABLE key_secrets (
  fingerprint TEXT PRIMARY KEY,
  noted_at    REAL NOT NULL
) STRICT;
