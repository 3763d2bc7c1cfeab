-- Reads its largest table through an index, so that its pages displace others from shared buffers and the page cache.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT sum(abalance) FROM pgbench_accounts WHERE aid > 0;
