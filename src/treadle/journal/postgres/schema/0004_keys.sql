-- Clients' keys. `lookup` finds a key, `mac` proves it; the key itself is nowhere. `powers` is JSON: what it may do.
CREATE TABLE keys (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL CONSTRAINT keys_id UNIQUE,
  name       text NOT NULL CONSTRAINT keys_name UNIQUE,
  lookup     text NOT NULL CONSTRAINT keys_lookup UNIQUE,
  mac        bytea NOT NULL,
  created_at double precision NOT NULL,
  expires_at double precision,
  revoked_at double precision,
  powers     text NOT NULL
);

-- What each key used: a row for every day and month, and one for all time.
CREATE TABLE key_usage (
  key_id        text NOT NULL,
  period        text NOT NULL,
  runs          bigint NOT NULL,
  input_tokens  bigint NOT NULL,
  output_tokens bigint NOT NULL,
  usd           double precision NOT NULL,
  PRIMARY KEY (key_id, period)
);
