-- A session has one run at a time, whatever process began it: session_id is that of the run, for as long as it lasts.
-- handed counts how often an owner gave the run up of its own will: such an epoch is no failed attempt.
ALTER TABLE leases ADD COLUMN session_id text, ADD COLUMN handed bigint NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX leases_session ON leases (session_id) WHERE session_id IS NOT NULL;

-- Links that were used and logins that were ended, until their time would have been over anyway.
CREATE TABLE spent_tickets (
  id    text PRIMARY KEY,
  until double precision NOT NULL
);
