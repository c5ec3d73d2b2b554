-- The processes that share this store: what each is and has, so that they can be compared. A row is written anew every
-- few seconds, so there is room on its page.
CREATE TABLE replicas (
  owner      text PRIMARY KEY,
  facts      text NOT NULL,
  started_at double precision NOT NULL,
  seen_at    double precision NOT NULL
) WITH (fillfactor = 50);

-- Fingerprints of the secrets under which keys were made or proved, so that a process with another one knows it.
CREATE TABLE key_secrets (
  fingerprint text PRIMARY KEY,
  noted_at    double precision NOT NULL
);
