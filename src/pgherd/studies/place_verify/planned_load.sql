-- Reads rows of a cached table: about half a millisecond of CPU, far more than the wake-up of a server process costs.
\set first random(1, 95000)
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + 3999;
