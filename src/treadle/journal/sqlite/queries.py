"""SQLite's own SQL for reading runs: its plans are chosen by the order of the joins.

Parameters are numbered `$1` as in all steps.
"""

from collections.abc import Sequence

import apsw

from treadle.journal.run_queries import EVENTS, ITEMS, SHOWN, RunStatements
from treadle.journal.sqlite.connection import select
from treadle.journal.sqlite.row_mapping import ENTRY_FIELDS, bind_text_list

# A run continues only an older one, so the order of their numbers is the order of the chain.
_HISTORY = f"""
WITH RECURSIVE chain (n) AS (
  SELECT n FROM runs WHERE id = $1
  UNION ALL
  SELECT r.previous FROM runs r JOIN chain c ON r.n = c.n WHERE r.previous IS NOT NULL
), shown (n) AS (
  SELECT r.n FROM chain CROSS JOIN runs r WHERE r.n = chain.n AND ({SHOWN} OR $2)
)
SELECT {ENTRY_FIELDS} FROM shown CROSS JOIN {EVENTS}
WHERE e.run = shown.n AND ({ITEMS} OR e.kind = 'void') ORDER BY e.run, e.seq
"""
_FIND_ITEM = f"""
WITH found AS (
  SELECT i.run, i.seq, i.kind, i.call_id FROM events i JOIN runs r ON r.n = i.run
  WHERE i.item_id = $1 AND {ITEMS.replace("e.kind", "i.kind")} AND ($2 IS NULL OR r.key_id = $2)
    AND {SHOWN}
  ORDER BY i.is_input, i.run DESC, i.seq DESC LIMIT 1
)
SELECT {ENTRY_FIELDS} FROM found CROSS JOIN {EVENTS}
WHERE e.run = found.run AND (e.seq = found.seq OR (
  found.kind = 'tool_call' AND e.kind = 'tool_result' AND e.is_input = 0 AND e.call_id = found.call_id))
ORDER BY e.seq
"""
# What a run was asked, and where its last round begins: a run holds the whole conversation before it, so a
# search in many runs must not go through all that they hold.
_QUESTION = """CASE WHEN r.question IS NULL
  THEN (SELECT q.content FROM events q WHERE q.run = r.n AND q.is_input = 1 AND q.kind = 'user'
        ORDER BY q.seq DESC LIMIT 1)
  ELSE (SELECT q.content FROM events q WHERE q.run = r.n AND q.seq = r.question) END"""
_LAST_PLAN = "(SELECT p.seq FROM events p WHERE p.run = r.n AND p.kind = 'plan' ORDER BY p.seq DESC LIMIT 1)"
_CALLED = """SELECT e.run FROM events e
WHERE e.call_id IN (SELECT value FROM json_each($1)) AND e.kind = 'tool_call' AND e.is_input = 0"""
# Where no run made such a call that is found out by itself, for a tenth of what the search costs.
_IS_CALLED = f"{_CALLED} LIMIT 1"
# Only what a client cannot know is worth remembering: results of the server's own calls, and a provider's opaque state.
# What is too large to be looked into may be that.
_FIND_TURNS = f"""
WITH turns AS MATERIALIZED (
  SELECT r.n, r.id, r.store, {_LAST_PLAN} AS plan FROM runs r
  WHERE r.n IN ({_CALLED}) AND r.status = 'requires_action' AND ($2 IS NULL OR r.key_id = $2)
    AND EXISTS (SELECT 1 FROM events k WHERE k.run = r.n AND k.seq > {_LAST_PLAN}
                AND (k.kind IN ('tool_result', 'reasoning') OR k.blob IS NOT NULL OR instr(k.data, '"blobs"')))
    AND (r.question = 0 OR coalesce({_QUESTION} IN (SELECT value FROM json_each($3)), 1))
  ORDER BY r.n DESC LIMIT $4
)
SELECT t.id, t.store, {ENTRY_FIELDS} FROM turns t CROSS JOIN {EVENTS}
WHERE e.run = t.n AND e.seq > t.plan AND {ITEMS} ORDER BY t.n DESC, e.seq
"""
_CHANGES = """
SELECT r.id, l.changes FROM json_each(?) j JOIN runs r ON r.id = j.value JOIN leases l ON l.run = r.n
"""

_CANCEL_REQUESTS = (
    "SELECT r.id FROM leases l JOIN runs r ON r.n = l.run WHERE l.owner = $1 AND l.cancel = 1 ORDER BY l.run"
)

STATEMENTS = RunStatements(
    history=_HISTORY,
    find_item=_FIND_ITEM,
    is_called=_IS_CALLED,
    find_turns=_FIND_TURNS,
    question=_QUESTION,
    error_code="{} IN ('', json_extract(r.error, '$.code'))",
    cancel_requests=_CANCEL_REQUESTS,
)


def changes(connection: apsw.Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Return how often each of the runs was written to; one that has ended or is not there has no number."""
    return dict(select(connection, _CHANGES, bind_text_list(run_ids)))
