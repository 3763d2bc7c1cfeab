-- Computes without memory, locks or I/O.
SELECT sum(x) FROM (SELECT sqrt(generate_series(1, 50000)) AS x) s;
