-- Clients' keys. `lookup` finds a key, `mac` proves it; the key itself is nowhere. `powers` is JSON: what it may do.
CREATE TABLE keys (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  name       TEXT NOT NULL UNIQUE,
  lookup     TEXT NOT NULL UNIQUE,
  mac        BLOB NOT NULL,
  created_at REAL NOT NULL,
  expires_at REAL,
  revoked_at REAL,
  powers     TEXT NOT NULL
) STRICT;

-- What each key used: a row for every day and month, and one for all time.
CREATE TABLE key_usage (
  key_id        TEXT NOT NULL,
  period        TEXT NOT NULL,
  runs          INTEGER NOT NULL,
  input_tokens  INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  usd           REAL NOT NULL,
  PRIMARY KEY (key_id, period)
) STRICT;
