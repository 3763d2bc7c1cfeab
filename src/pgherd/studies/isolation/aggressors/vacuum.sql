-- Bloats a table, from which the server's autovacuum removes the dead rows. The run sets autovacuum_naptime to 1 s.
SELECT NOT EXISTS (SELECT FROM pgbench_history WHERE tid = :client_id) AS fresh \gset
\if :fresh
\if :client_id = 0
ALTER TABLE pgbench_history SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS pgbench_history_delta ON pgbench_history (delta);
\endif
INSERT INTO pgbench_history (tid, delta) SELECT :client_id, generate_series(1, 25000);
\endif
UPDATE pgbench_history SET delta = delta + 1 WHERE tid = :client_id;
