-- The conversation as Chat messages: a turn of the assistant is one row, with its text and all of its calls. A turn
-- goes on with calls behind text or calls, and with text behind calls. Each row finds its turn by the numbers of its own
-- run, so that one conversation costs what it is long.
DROP VIEW messages;
CREATE VIEW messages AS
WITH entries AS NOT MATERIALIZED (
  SELECT e.run, e.seq, e.kind, e.name, e.call_id, e.content, e.at, e.is_input,
         CASE WHEN typeof(coalesce(e.data, CAST(b.data AS TEXT))) = 'text'
                   AND json_valid(coalesce(e.data, CAST(b.data AS TEXT)))
              THEN coalesce(e.data, CAST(b.data AS TEXT)) END AS data,
         coalesce((SELECT p.kind FROM events p
                   WHERE p.run = e.run AND p.seq < e.seq
                         AND p.kind IN ('system', 'user', 'assistant', 'tool_call', 'tool_result')
                   ORDER BY p.seq DESC LIMIT 1), '') AS before
  FROM events e LEFT JOIN blobs b ON b.sha256 = e.blob
  WHERE e.kind IN ('system', 'user', 'assistant', 'tool_call', 'tool_result')
), begun AS NOT MATERIALIZED (
  SELECT *, CASE WHEN kind = 'tool_result' THEN data ->> '$.output' END AS output,
         coalesce((SELECT min(n.seq) FROM entries n
                   WHERE n.run = entries.run AND n.seq > entries.seq
                         AND (n.kind NOT IN ('assistant', 'tool_call') OR (n.kind = 'assistant' AND n.before <> 'tool_call'))),
                  9223372036854775807) AS until
  FROM entries
  WHERE NOT (kind = 'tool_call' AND before IN ('assistant', 'tool_call')) AND NOT (kind = 'assistant' AND before = 'tool_call')
), shaped AS NOT MATERIALIZED (
  SELECT *, CASE WHEN json_valid(output) THEN json_type(output) IN ('object', 'array') ELSE 0 END AS is_structured,
         kind IN ('assistant', 'tool_call') AS is_turn,
         (SELECT count(*) FROM events c
          WHERE c.run = begun.run AND c.seq >= begun.seq AND c.seq < begun.until AND c.kind = 'tool_call') AS calls,
         (SELECT count(*) FROM events t
          WHERE t.run = begun.run AND t.seq >= begun.seq AND t.seq < begun.until AND t.kind = 'assistant') AS texts
  FROM begun
)
SELECT r.id AS run_id,
       s.seq AS seq,
       r.conversation_id AS conversation_id,
       r.session_id AS session_id,
       CASE s.kind
         WHEN 'tool_call' THEN 'assistant'
         WHEN 'tool_result' THEN 'tool'
         ELSE coalesce(s.data ->> '$.item.role', s.kind)
       END AS role,
       CASE
         WHEN s.kind = 'tool_result' THEN CASE WHEN s.is_structured THEN NULL ELSE coalesce(s.output, s.content) END
         WHEN s.is_turn AND (s.kind = 'tool_call' OR s.texts > 1) THEN
           (SELECT group_concat(t.content, char(10, 10)) FROM
             (SELECT content FROM events
              WHERE run = s.run AND seq >= s.seq AND seq < s.until AND kind = 'assistant' ORDER BY seq) t)
         ELSE s.content
       END AS content,
       CASE
         WHEN s.kind = 'tool_result' THEN CASE WHEN s.is_structured THEN s.output END
         WHEN s.kind = 'tool_call' OR (s.is_turn AND s.texts > 1) THEN NULL
         ELSE s.data -> '$.item.content'
       END AS content_json,
       CASE WHEN s.is_turn AND s.calls > 0 THEN
         (SELECT nullif(json_group_array(json(c.call)), '[]') FROM
           (SELECT json_object('id', data ->> '$.id', 'type', data ->> '$.type',
                               'function', json(data -> '$.function')) AS call
            FROM entries
            WHERE run = s.run AND seq >= s.seq AND seq < s.until AND kind = 'tool_call' AND data IS NOT NULL
            ORDER BY seq) c)
       END AS tool_calls,
       CASE WHEN s.kind = 'tool_result' THEN s.call_id END AS tool_call_id,
       CASE WHEN s.is_turn AND s.calls = 1 AND (
              (NOT s.is_input AND (SELECT CASE WHEN json_valid(q.body) THEN q.body ->> '$.surface.legacy_functions' END
                                   FROM requests q WHERE q.run = s.run AND typeof(q.body) = 'text'))
              OR (s.is_input AND EXISTS (SELECT 1 FROM events c WHERE c.run = s.run AND c.seq >= s.seq AND c.seq < s.until
                                         AND c.kind = 'tool_call' AND c.call_id LIKE 'call\_%\_legacy' ESCAPE '\')))
         THEN (SELECT c.data -> '$.function' FROM entries c
               WHERE c.run = s.run AND c.seq >= s.seq AND c.seq < s.until AND c.kind = 'tool_call')
       END AS function_call,
       CASE WHEN NOT s.is_turn OR s.calls < 2 THEN s.name END AS name,
       s.is_input AS is_input,
       s.at AS created_at
FROM shaped s JOIN runs r ON r.n = s.run;
