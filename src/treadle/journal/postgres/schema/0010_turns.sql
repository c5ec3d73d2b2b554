-- The conversation as Chat messages: a turn of the assistant is one row, with its text and all of its calls. A turn
-- goes on with calls behind text or calls, and with text behind calls. Each row finds its turn by the numbers of its own
-- run, so that one conversation costs what it is long.
DROP VIEW messages;
CREATE VIEW messages AS
WITH entries AS NOT MATERIALIZED (
  SELECT e.run, e.seq, e.kind, e.name, e.call_id, e.content, e.at, e.is_input,
         readable_json(coalesce(e.data, readable_bytes(b.data))) AS data,
         coalesce((SELECT p.kind FROM events p
                   WHERE p.run = e.run AND p.seq < e.seq
                         AND p.kind IN ('system', 'user', 'assistant', 'tool_call', 'tool_result')
                   ORDER BY p.seq DESC LIMIT 1), '') AS before
  FROM events e LEFT JOIN blobs b ON b.sha256 = e.blob
  WHERE e.kind IN ('system', 'user', 'assistant', 'tool_call', 'tool_result')
), begun AS NOT MATERIALIZED (
  SELECT e.*, CASE WHEN kind = 'tool_result' AND json_typeof(data) = 'object' THEN data ->> 'output' END AS output,
         coalesce((SELECT min(n.seq) FROM entries n
                   WHERE n.run = e.run AND n.seq > e.seq
                         AND (n.kind NOT IN ('assistant', 'tool_call') OR (n.kind = 'assistant' AND n.before <> 'tool_call'))),
                  9223372036854775807) AS until
  FROM entries e
  WHERE NOT (kind = 'tool_call' AND before IN ('assistant', 'tool_call')) AND NOT (kind = 'assistant' AND before = 'tool_call')
), shaped AS NOT MATERIALIZED (
  SELECT b.*, coalesce(json_typeof(readable_json(output)) IN ('object', 'array'), false) AS is_structured,
         kind IN ('assistant', 'tool_call') AS is_turn,
         (SELECT count(*) FROM events c
          WHERE c.run = b.run AND c.seq >= b.seq AND c.seq < b.until AND c.kind = 'tool_call') AS calls,
         (SELECT count(*) FROM events t
          WHERE t.run = b.run AND t.seq >= b.seq AND t.seq < b.until AND t.kind = 'assistant') AS texts
  FROM begun b
)
SELECT r.id AS run_id,
       s.seq AS seq,
       r.conversation_id AS conversation_id,
       r.session_id AS session_id,
       CASE s.kind
         WHEN 'tool_call' THEN 'assistant'
         WHEN 'tool_result' THEN 'tool'
         ELSE coalesce(s.data #>> '{item,role}', s.kind)
       END AS role,
       CASE
         WHEN s.kind = 'tool_result' THEN
           CASE WHEN s.is_structured THEN NULL ELSE readable(coalesce(s.output, s.content)) END
         WHEN s.is_turn AND (s.kind = 'tool_call' OR s.texts > 1) THEN
           (SELECT string_agg(readable(t.content), E'\n\n' ORDER BY t.seq) FROM events t
            WHERE t.run = s.run AND t.seq >= s.seq AND t.seq < s.until AND t.kind = 'assistant')
         ELSE readable(s.content)
       END AS content,
       CASE
         WHEN s.kind = 'tool_result' THEN CASE WHEN s.is_structured THEN s.output END
         WHEN s.kind = 'tool_call' OR (s.is_turn AND s.texts > 1) THEN NULL
         ELSE (s.data #> '{item,content}')::text
       END AS content_json,
       CASE WHEN s.is_turn AND s.calls > 0 THEN
         (SELECT json_agg(json_build_object('id', c.data ->> 'id', 'type', c.data ->> 'type',
                                            'function', c.data -> 'function') ORDER BY c.seq)::text
          FROM entries c
          WHERE c.run = s.run AND c.seq >= s.seq AND c.seq < s.until AND c.kind = 'tool_call' AND c.data IS NOT NULL)
       END AS tool_calls,
       CASE WHEN s.kind = 'tool_result' THEN readable(s.call_id) END AS tool_call_id,
       CASE WHEN s.is_turn AND s.calls = 1 AND (
              (NOT s.is_input AND coalesce((SELECT readable_json(q.body) #>> '{surface,legacy_functions}' = 'true'
                                            FROM requests q WHERE q.run = s.run), false))
              OR (s.is_input AND EXISTS (SELECT 1 FROM events c WHERE c.run = s.run AND c.seq >= s.seq AND c.seq < s.until
                                         AND c.kind = 'tool_call' AND c.call_id LIKE 'call\_%\_legacy')))
         THEN (SELECT (c.data -> 'function')::text FROM entries c
               WHERE c.run = s.run AND c.seq >= s.seq AND c.seq < s.until AND c.kind = 'tool_call')
       END AS function_call,
       CASE WHEN NOT s.is_turn OR s.calls < 2 THEN readable(s.name) END AS name,
       s.is_input AS is_input,
       s.at AS created_at
FROM shaped s JOIN runs r ON r.n = s.run;
