-- Changes pages everywhere in its largest table, and writes them all back.
\set first random(1, 100 * 1000)
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % 1000 = :first % 1000;
CHECKPOINT;
