"""PostgreSQL's own SQL for reading runs."""

from treadle.core.journal_entries import ITEM_KINDS
from treadle.journal.postgres.row_mapping import ENTRY_FIELDS
from treadle.journal.run_queries import EVENTS, ITEMS, SHOWN, RunStatements

_ITEM_KINDS = ", ".join(f"'{kind}'" for kind in sorted(ITEM_KINDS))

# A run continues only an older one, so the order of their numbers is the order of the chain.
_HISTORY = f"""
WITH RECURSIVE chain (n) AS (
  SELECT n FROM runs WHERE id = $1
  UNION ALL
  SELECT r.previous FROM runs r JOIN chain c ON r.n = c.n WHERE r.previous IS NOT NULL
)
SELECT {ENTRY_FIELDS} FROM chain JOIN runs r ON r.n = chain.n AND ({SHOWN} OR $2::bool)
JOIN events e ON e.run = chain.n LEFT JOIN blobs b ON b.sha256 = e.blob
WHERE e.kind IN ({_ITEM_KINDS}, 'void') ORDER BY e.run, e.seq
"""
_FIND_ITEM = f"""
WITH found AS (
  SELECT i.run, i.seq, i.kind, i.call_id FROM events i JOIN runs r ON r.n = i.run
  WHERE i.item_id = $1 AND i.kind IN ({_ITEM_KINDS}) AND ($2::text IS NULL OR r.key_id = $2)
    AND {SHOWN}
  ORDER BY i.is_input, i.run DESC, i.seq DESC LIMIT 1
)
SELECT {ENTRY_FIELDS} FROM found JOIN events e ON e.run = found.run LEFT JOIN blobs b ON b.sha256 = e.blob
WHERE e.seq = found.seq OR (
  found.kind = 'tool_call' AND e.kind = 'tool_result' AND NOT e.is_input AND e.call_id = found.call_id)
ORDER BY e.seq
"""
# What a run was asked, and where its last round begins: a run holds the whole conversation before it, so a
# search in many runs must not go through all that they hold.
_QUESTION = """CASE WHEN r.question IS NULL
  THEN (SELECT q.content FROM events q WHERE q.run = r.n AND q.is_input AND q.kind = 'user' ORDER BY q.seq DESC LIMIT 1)
  ELSE (SELECT q.content FROM events q WHERE q.run = r.n AND q.seq = r.question) END"""
# The last plan is near the end, as a rule, but PostgreSQL would not search there first.
_PLANS = "SELECT max(p.seq) FROM events p WHERE p.run = r.n AND p.kind = 'plan'"
_LAST_PLAN = f"coalesce(({_PLANS} AND p.seq > r.head - 64), ({_PLANS}))"
# Only what a client cannot know is worth remembering: results of the server's own calls, and a provider's opaque state.
# What is too large to be looked into may be that. The limits, and the offsets, let each be looked up by its key: else a
# plan may go through all entries of all runs.
_FIND_TURNS = f"""
WITH called AS (
  SELECT DISTINCT e.run FROM unnest($1::text[]) AS w (call_id), LATERAL (
    SELECT c.run FROM events c WHERE c.call_id = w.call_id AND c.kind = 'tool_call' AND NOT c.is_input OFFSET 0) AS e
), turns AS (
  SELECT r.n, r.id, r.store, {_LAST_PLAN} AS plan
  FROM called, LATERAL (SELECT * FROM runs f WHERE f.n = called.run LIMIT 1) AS r
  WHERE r.status = 'requires_action' AND ($2::text IS NULL OR r.key_id = $2)
    AND (SELECT true FROM events k WHERE k.run = r.n AND k.seq > {_LAST_PLAN}
         AND (k.kind IN ('tool_result', 'reasoning') OR k.blob IS NOT NULL OR strpos(k.data, '"blobs"') > 0) LIMIT 1)
    AND (r.question = 0 OR coalesce({_QUESTION} = ANY($3::text[]), true))
  ORDER BY r.n DESC LIMIT $4
)
SELECT t.id, t.store, item.* FROM turns t, LATERAL (
  SELECT {ENTRY_FIELDS} FROM {EVENTS} WHERE e.run = t.n AND e.seq > t.plan AND {ITEMS} OFFSET 0) AS item
ORDER BY t.n DESC, item.seq
"""

_CANCEL_REQUESTS = "SELECT r.id FROM leases l JOIN runs r ON r.n = l.run WHERE l.owner = $1 AND l.cancel ORDER BY l.run"

STATEMENTS = RunStatements(
    history=_HISTORY,
    find_item=_FIND_ITEM,
    find_turns=_FIND_TURNS,
    question=_QUESTION,
    # The code is an error's first field; read as JSON, a NUL that is quoted further on would be refused.
    error_code='{0}::text IN (\'\', substring(r.error from \'^."code":"([^"]*)"\'))',
    cancel_requests=_CANCEL_REQUESTS,
)
