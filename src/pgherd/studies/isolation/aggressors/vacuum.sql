-- Leaves dead rows behind and removes them at the pace of autovacuum.
SET vacuum_cost_delay = '2ms';
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid <= 20000;
VACUUM pgbench_accounts;
